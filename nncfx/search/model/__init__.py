"""Gaussian processes fitted to measurements."""
