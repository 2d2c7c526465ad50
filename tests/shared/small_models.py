"""Small models that between them do what models do, and what tests do to models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Role


class Function(nn.Module):
    """A forward written as one function of the module."""

    def __init__(self, forward: Callable[..., object], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> object:
        return self.function(self, x, *more)


class Applied(nn.Module):
    """A forward that is a function without a module of its own."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(x)


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


def make(name: str) -> nn.Module:
    """Return a model of `CASES`: the same weights every time, in evaluation mode."""
    torch.manual_seed(0)
    return CASES[name].make().eval()


def inputs(name: str) -> object:
    return CASES[name].inputs


class Rounding(nn.Module):
    """A quantizer as small as can be: fixed scale, and zero point 0 unless given."""

    def __init__(
        self,
        scale: torch.Tensor | float,
        limits: tuple[int, int],
        *,
        zero_point: torch.Tensor | int = 0,
        axis: int | None = None,
    ) -> None:
        super().__init__()
        scale = torch.as_tensor(scale)
        self.register_buffer("scale", scale)
        zero_points = torch.as_tensor(zero_point).to(torch.int32).expand(scale.shape).clone()
        self.register_buffer("zero_point", zero_points)
        self.limits, self.axis = limits, axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.axis is None:
            return torch.fake_quantize_per_tensor_affine(
                x, self.scale, self.zero_point, *self.limits
            )
        return torch.fake_quantize_per_channel_affine(
            x, self.scale, self.zero_point, self.axis, *self.limits
        )


def randomized(model: nn.Module) -> nn.Module:
    """Give parameters and statistics values at which nothing is zero or one by accident."""
    generator = torch.Generator().manual_seed(7)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point() and tensor.dim() == 1:
            tensor.uniform_(0.5, 1.5, generator=generator)
            if "mean" in name or name.endswith("bias"):
                tensor.sub_(1)
    return model


def unread(
    model: nn.Module,
    example_inputs: torch.Tensor,
    groups: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, tuple[int, ...]]:
    """Zero what reads some groups, by default half of each set; return these by set name."""
    generator = torch.Generator().manual_seed(3)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    removed = {}
    for group_set in analyze_channels(model, example_inputs).prunable:
        half = torch.randperm(group_set.size, generator=generator)[: group_set.size // 2]
        chosen = sorted(half.tolist()) if groups is None else groups.get(group_set.name, ())
        if not chosen or not group_set.by_role(Role.CONSUMER):
            continue
        for member in group_set.by_role(Role.CONSUMER):
            index = torch.from_numpy(member.entries(chosen))
            parameters[member.parameter].data.index_fill_(member.axis, index, 0.0)
        removed[group_set.name] = tuple(group_set.origin.entries(chosen).tolist())
    return removed


def is_same(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two modules have bitwise equal states, gradients and modes."""
    a, b = one.state_dict(), other.state_dict()
    return (
        list(a) == list(b)
        and all(torch.equal(a[key], b[key]) for key in a)
        and all(
            (p.grad is None) == (q.grad is None)
            for p, q in zip(one.parameters(), other.parameters(), strict=True)
        )
        and [m.training for m in one.modules()] == [m.training for m in other.modules()]
    )
