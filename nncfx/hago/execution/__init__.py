"""Execution of a strategy: simulated in floats, in integers, or exported."""
