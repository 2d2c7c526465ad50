"""Quantizers, ranges, placement and post-training quantization."""

__all__: list[str] = []
