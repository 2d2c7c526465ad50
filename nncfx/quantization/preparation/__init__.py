"""Changes of a model that make it easier to quantize and keep what it computes."""
