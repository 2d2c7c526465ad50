"""The trials of a run: building, timing and choosing candidates."""
