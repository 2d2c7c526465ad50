"""Rules for operations on quantized edges: scales, bounds, integer kernels."""
