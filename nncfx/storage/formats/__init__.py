"""Files and their layouts, without torch."""
