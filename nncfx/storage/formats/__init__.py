"""File formats and file access, without torch."""
