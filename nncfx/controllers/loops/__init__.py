"""Loops that run data or training through a compressed model."""
