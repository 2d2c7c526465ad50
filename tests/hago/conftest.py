"""Small models whose quantization can be followed by hand, and data that they can judge."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx import hago
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.targets import Descriptor, Hardware, hardware_named


class Residual(nn.Module):
    """Convolution, batch norm and ReLU twice, a shortcut, an average and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    made = Residual().eval()
    for one in made.modules():
        if isinstance(one, nn.BatchNorm2d):
            one.running_mean.normal_(0, 0.2)
            one.running_var.uniform_(0.5, 1.5)
    return made


@pytest.fixture
def graph(model: nn.Module) -> hago.QuantGraph:
    return hago.prepare_graph(model, torch.zeros(1, 3, 8, 8))


@pytest.fixture
def dataset(model: nn.Module) -> LabelledBatches:
    """Two batches that the model in floats gets all right."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(64, 3, 8, 8, generator=generator)
    with torch.no_grad():
        labels = model(images).argmax(1)
    return list(zip(images.split(32), labels.split(32), strict=True))


@pytest.fixture
def sample() -> Hardware:
    return hardware_named("hago")


@pytest.fixture
def vnni() -> Hardware:
    return hardware_named("onnxruntime")


@pytest.fixture
def narrow_sums() -> Hardware:
    """Convolutions of bytes whose sums are kept in 16 bits, and wrap around there."""
    sums = (Descriptor(inputs=("int8",), output="int16"),)
    wide = (Descriptor(inputs=("int16",), output="int16"),)
    return Hardware(
        name="narrow sums", operations={"conv": sums, "linear": sums, "relu": wide, "add": wide}
    )


@pytest.fixture
def space(graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches) -> hago.SearchSpace:
    return hago.search_space(graph, vnni, dataset, hago.QuantizeSettings())


@pytest.fixture
def evaluator(
    graph: hago.QuantGraph, vnni: Hardware, dataset: LabelledBatches, space: hago.SearchSpace
) -> hago.Evaluator:
    return hago.Evaluator(graph, vnni, space.strategy, dataset, hago.top1_accuracy)
