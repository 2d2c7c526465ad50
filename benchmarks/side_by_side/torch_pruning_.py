"""Torch-Pruning for channels, ONNX Runtime's quantizer for integers: each lacks the other."""

from task import batches, example, model, report, train

# tool
import time

import onnxruntime
import torch
import torch_pruning
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

importance = torch_pruning.importance.GroupMagnitudeImportance(p=2)
ignored = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
pruner = torch_pruning.pruner.BasePruner(
    model, example, importance, pruning_ratio=0.3, ignored_layers=ignored
)
pruner.step()
train(model)
torch.onnx.export(model, (example,), "float.onnx", input_names=["x"], dynamo=True)
quant_pre_process("float.onnx", "prepared.onnx")


class Reader(CalibrationDataReader):
    def __init__(self):
        self.batches = iter(batches[0].split(1))

    def get_next(self):
        batch = next(self.batches, None)
        return None if batch is None else {"x": batch.numpy()}


quantize_static("prepared.onnx", "torch_pruning.onnx", Reader(), per_channel=True)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("torch_pruning.onnx", options)
inputs, times = {"x": example.numpy()}, []
for _ in range(500):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
median = sorted(times)[250] * 1000
# end
report("torch_pruning.onnx", median)
