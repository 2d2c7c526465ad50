"""The command line: `nncfx version`, `report`, `pack`, `unpack`, `inspect-file`, `benchmark`."""
