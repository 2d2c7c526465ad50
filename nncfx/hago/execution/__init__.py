"""A strategy at work: simulated in floats, realized in integers, exported."""
