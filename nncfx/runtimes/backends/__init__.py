"""The runtimes, one a module."""
