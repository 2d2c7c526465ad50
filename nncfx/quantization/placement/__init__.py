"""Where quantizers go in a model, planned as data."""
