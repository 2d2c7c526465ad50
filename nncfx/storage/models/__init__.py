"""Models in files: the torch edge of the formats."""
