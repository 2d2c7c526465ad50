"""Hago's view of a traced model, and the calls that run it."""
