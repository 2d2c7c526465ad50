"""What each script has before it begins: a trained ResNet-20, CIFAR-10, and a loop that trains."""

import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[1]))
from pretrained import PRETRAINED

DATA = Path(os.environ["NNCFX_DATA"])
STEPS = int(os.environ.get("STEPS", "300"))

torch.manual_seed(0)
torch.set_num_threads(1)
network = PRETRAINED["resnet20-B"]
model = network.load(DATA)
images, labels = network.train(DATA, STEPS * 64)
batches = images.split(64)
example = images[:1]


def train(model: nn.Module) -> None:
    """Fine-tune `model` in place on each batch once."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    model.train()
    for batch, target in zip(batches, labels.split(64), strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(batch), target).backward()
        optimizer.step()
        schedule.step()
    model.eval()


def accuracy(predict: Callable[[Tensor], object], count: int = 10_000) -> float:
    """Return the fraction of the test images that `predict` gets right, n x 3 x 32 x 32 a call."""
    tested, truth = network.test(DATA)
    found: Iterable[Tensor] = (torch.as_tensor(predict(one)) for one in tested[:count].split(1))
    return float((torch.cat([one.argmax(1) for one in found]) == truth[:count]).float().mean())


def report(path: str, milliseconds: float) -> None:
    """Write what came of a script as one JSON line: of the ONNX file `path` and its time."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    print(
        json.dumps(
            {
                "accuracy": accuracy(lambda one: session.run(None, {name: np.asarray(one)})[0]),
                "bytes": Path(path).stat().st_size,
                "milliseconds": milliseconds,
            }
        )
    )
