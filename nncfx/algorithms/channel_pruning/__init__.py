"""The algorithms that zero whole channels, and the controller that they share."""
