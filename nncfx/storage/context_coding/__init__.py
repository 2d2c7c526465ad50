"""Context coding: integers as binary decisions, whose odds are mixed from their neighbours."""
