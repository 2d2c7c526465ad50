"""Parallel trials: workers on this machine or on a Ray cluster, and their driver."""
