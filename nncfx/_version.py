"""The version of nncfx, also read by the build."""

__version__ = "0.1.0"
