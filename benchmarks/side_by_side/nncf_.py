"""nncf 3.4: half of the weights masked (it removes no channel any more), fine-tuned, int8."""

from task import batches, example, model, report, train

# tool
import time

import nncf
import nncf.torch
import onnxruntime
import torch

model = nncf.prune(
    model, nncf.PruneMode.UNSTRUCTURED_MAGNITUDE_GLOBAL, ratio=0.5, examples_inputs=example
)
train(model)
model = nncf.strip(model, strip_format=nncf.StripFormat.IN_PLACE, example_input=example)
model = nncf.quantize(model, nncf.Dataset(batches[:8]), subset_size=8)
model = nncf.strip(model, example_input=example)
torch.onnx.export(model, (example,), "nncf.onnx", input_names=["x"], dynamo=False)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("nncf.onnx", options)
inputs, times = {"x": example.numpy()}, []
for _ in range(500):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
median = sorted(times)[250] * 1000
# end
report("nncf.onnx", median)
