"""Export to `torch.export` with PyTorch's own quantized operators."""
