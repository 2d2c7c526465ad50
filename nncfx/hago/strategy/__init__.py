"""What is quantized, with how many bits, up to which thresholds."""
