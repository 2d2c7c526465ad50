"""Rules of operations on quantized edges: scales, bounds, integer kernels."""
