"""Small models that between them do what models do."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """The one of NNCF's document."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 12)
        self.fc2 = nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.view(-1, 16 * 5 * 5)
        return self.fc2(F.relu(self.fc1(x)))


class Shared(nn.Module):
    """One layer called three times, and a functional call between."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return x


@dataclass
class Result:
    """A model's output that is no tensor."""

    features: torch.Tensor
    logits: list[torch.Tensor]


class Mixed(nn.Module):
    """Operators, in-place calls, a child that calls the same function, nested outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
        self.norm = nn.BatchNorm1d(4)
        self.scale = nn.Parameter(torch.full((4,), 1.5))

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> Result:
        y = F.relu(self.blocks[0](x))
        y = self.blocks[1](y) * self.scale
        y = self.norm(y)
        y += x
        if bias is not None:
            y = y - bias
        y = F.relu(y, inplace=True)
        left, right = y.chunk(2, 1)
        return Result(features=y, logits=[torch.cat([left, right, x], 1)])


class Halve(nn.Module):
    """A hook with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class AddOne(nn.Module):
    """A hook that does not commute with `Halve`."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


@dataclass(frozen=True)
class Case:
    """A model and what it takes."""

    make: Callable[[], nn.Module]
    inputs: object


CASES = {
    "LeNet": Case(LeNet, torch.linspace(-1, 1, 1024).view(1, 1, 32, 32)),
    "Shared": Case(Shared, torch.linspace(-1, 1, 8).view(2, 4)),
    "Mixed": Case(Mixed, {"x": torch.linspace(-1, 1, 12).view(3, 4), "bias": torch.ones(4)}),
    "Sequential": Case(
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.ones(2, 4)
    ),
    "LSTM": Case(
        lambda: nn.LSTM(4, 3, bidirectional=True), torch.linspace(-1, 1, 24).view(3, 2, 4)
    ),
    "Attention": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16), torch.linspace(-1, 1, 48).view(3, 2, 8)
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def make() -> Callable[[str], nn.Module]:
    """Return a model by name: the same weights every time, in evaluation mode."""

    def made(name: str) -> nn.Module:
        torch.manual_seed(0)
        return CASES[name].make().eval()

    return made


@pytest.fixture
def inputs() -> Callable[[str], object]:
    return lambda name: CASES[name].inputs


@pytest.fixture
def halve() -> nn.Module:
    return Halve()


@pytest.fixture
def add_one() -> nn.Module:
    return AddOne()


@pytest.fixture(scope="module")
def short_proof() -> Iterator[None]:
    """Time the winner of a search for a tenth of a second, where nobody reads its interval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nncfx.compressor.build_evidence._PROOF_SECONDS", 0.1)
        yield
