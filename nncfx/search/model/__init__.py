"""Gaussian processes of what was measured."""
