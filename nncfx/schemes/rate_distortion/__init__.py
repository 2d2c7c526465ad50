"""Rounding that weighs the cost of an error against the bits that it saves."""
