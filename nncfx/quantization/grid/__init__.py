"""Quantized numbers: grids of integers, their specification, and the quantizer modules."""
