"""Changes that make a model easier to quantize without changing what it computes."""
