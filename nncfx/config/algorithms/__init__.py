"""The config sections of the algorithms."""
