"""torchao: weights masked by torch (torchao has 2:4 for GPUs), fine-tuned, int8 by PT2E, ONNX."""

from task import batches, example, model, report, train

# tool
import time

import onnxruntime
import torch
from torch.nn.utils import prune
from torchao.quantization.pt2e import move_exported_model_to_eval
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
    X86InductorQuantizer,
    get_default_x86_inductor_quantization_config,
)

weights = [(one, "weight") for one in model.modules() if isinstance(one, torch.nn.Conv2d)]
prune.global_unstructured(weights, prune.L1Unstructured, amount=0.5)
train(model)
for module, name in weights:
    prune.remove(module, name)
quantizer = X86InductorQuantizer()
quantizer.set_global(get_default_x86_inductor_quantization_config())
prepared = prepare_pt2e(torch.export.export(model, (example,)).module(), quantizer)
for image in batches[0].split(1):
    prepared(image)
converted = convert_pt2e(prepared)
move_exported_model_to_eval(converted)
torch.onnx.export(converted, (example,), "torchao.onnx", input_names=["x"], dynamo=True)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("torchao.onnx", options)
inputs, times = {"x": example.numpy()}, []
for _ in range(500):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
median = sorted(times)[250] * 1000
# end
report("torchao.onnx", median)
