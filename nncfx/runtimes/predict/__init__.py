"""Latency predicted from measured modules."""
