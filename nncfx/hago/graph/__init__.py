"""Hago's graph of a traced model, and the calls that execute it."""
