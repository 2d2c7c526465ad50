"""Quantized checkpoints of language models in the formats of other programs."""
