"""Folders of quantized language models, in the formats that other programs read."""
