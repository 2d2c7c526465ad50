"""Quantization by search over a hardware description, simulated and realized in integers."""

__all__: list[str] = []
