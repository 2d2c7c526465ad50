"""Read and edit ONNX graphs: constants, grids, integer weights, fake-quantize nodes."""
