"""Grids of integers, their specification, and the quantizer modules."""
