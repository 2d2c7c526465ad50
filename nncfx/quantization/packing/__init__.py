"""Layers that hold quantized weights as their codes in memory and decode them while they run."""
