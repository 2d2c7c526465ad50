"""Strategies: what is quantized, with how many bits, and up to which thresholds."""
