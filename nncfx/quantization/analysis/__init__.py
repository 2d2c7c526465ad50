"""What quantization costs in accuracy, layer by layer."""
