"""Measure the accuracy loss of quantization by layer, and limit it."""
