"""The command line: `nncfx version`, `report`, `inspect-file` and `benchmark`."""
