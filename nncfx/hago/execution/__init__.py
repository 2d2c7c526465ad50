"""Execution of a strategy: simulated in floats, realized in integers, or exported."""
