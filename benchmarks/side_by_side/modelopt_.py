"""modelopt: FastNAS to half of the FLOPs, fine-tuned, int8, ONNX."""

import torchvision_on_cpu  # noqa: F401 (torchprofile imports torchvision)
from task import accuracy, batches, example, labels, model, report, train

# tool
import time

import modelopt.torch.prune as mtp
import modelopt.torch.quantization as mtq
import onnxruntime
import torch

loader = list(zip(batches, labels.split(64)))
config = mtp.fastnas.FastNASConfig()
config["nn.Conv2d"]["*"]["channel_divisor"] = 4
config["nn.BatchNorm2d"]["*"]["feature_divisor"] = 4
model, _ = mtp.prune(
    model,
    mode=[("fastnas", config)],
    constraints={"flops": "50%"},
    dummy_input=example,
    config={
        "data_loader": loader,
        "collect_func": lambda pair: (pair[0],),
        "score_func": lambda found: accuracy(found, 500),
        "checkpoint": "search.pth",
    },
)
train(model)


def calibrate(found):
    for batch in batches[:8]:
        found(batch)


model = mtq.quantize(model, mtq.INT8_DEFAULT_CFG, calibrate)
torch.onnx.export(model, (example,), "modelopt.onnx", input_names=["x"], dynamo=False)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession("modelopt.onnx", options)
inputs, times = {"x": example.numpy()}, []
for _ in range(500):
    start = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - start)
median = sorted(times)[250] * 1000
# end
report("modelopt.onnx", median)
