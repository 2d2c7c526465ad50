"""The runtimes, one per module."""
