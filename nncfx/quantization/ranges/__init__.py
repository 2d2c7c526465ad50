"""Ranges of quantizers, from statistics of data."""
