"""Bitwise simulation of integer kernels."""
