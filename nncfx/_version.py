"""The version of nncfx, read by the packaging as well."""

__version__ = "0.1.0"
