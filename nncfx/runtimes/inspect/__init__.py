"""Inspects what a runtime does with a model: kernels, layers, memory, energy, accuracy."""
