"""Reading and editing ONNX graphs: constants, grids, integer weights, fake-quantize nodes."""
