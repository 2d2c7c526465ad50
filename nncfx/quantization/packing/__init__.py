"""Layers that hold quantized weights as codes in memory and decode them while they run."""
