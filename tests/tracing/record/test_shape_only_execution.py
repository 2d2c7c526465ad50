"""A trace that computes nothing is the trace that computes, and gives way where values matter."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import TracingError
from nncfx.tracing.record.tracer import trace_of_shapes, trace_with_wiring
from small_models import Function

SIDE = 300
INPUTS = torch.randn(4, SIDE, generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(1, 3, 200, 200, generator=torch.Generator().manual_seed(0))


class Branching(nn.Module):
    """Multiplies, looks at a value, and goes one way or the other."""

    def __init__(self, look: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.first = nn.Linear(SIDE, SIDE)
        self.look = look
        nn.init.constant_(self.first.bias, 1.0)
        nn.init.zeros_(self.first.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        # with values x is one everywhere; without, zero
        return torch.sigmoid(x) if self.look(x) else torch.tanh(x)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.sum() > 0,
        lambda x: x.sum().item(),
        lambda x: int(x.max()),
        lambda x: x.tolist()[0][0],
        lambda x: x.detach().numpy().any(),
        lambda x: x.nonzero().shape[0],
        lambda x: x[x > 0].shape[0],
        lambda x: torch.where(x > 0)[0].shape[0],
        lambda x: torch.masked_select(x, x > 0).shape[0],
        lambda x: torch.unique(x)[0].item(),
        lambda x: torch.equal(x, torch.ones_like(x)),
        lambda x: x.repeat_interleave(x[:, 0].long(), dim=0).shape[0],
        lambda x: torch.repeat_interleave(x[0].long()).shape[0],
        lambda x: list(range(x[0, 0].long()))
    ],
)  # fmt: skip
def test_a_branch_on_a_value_is_taken_as_the_values_say(look: Callable[[Tensor], object]) -> None:
    graph = nncfx.wrap(Branching(look), INPUTS).nncf.graph
    assert any(address.endswith("sigmoid_0") for address in graph.addresses)


def test_a_branch_on_an_image_is_taken_as_its_values_say() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        return torch.sigmoid(m.conv(x)) if x.min() > 0 else torch.tanh(m.conv(x))

    model = Function(forward, conv=nn.Conv2d(3, 8, 3))
    for image, function in ((torch.ones(1, 3, 200, 200), "sigmoid_0"), (IMAGE, "tanh_0")):
        addresses = trace_of_shapes(model, image).graph.addresses
        assert addresses[-1].endswith(function)


def test_a_model_that_catches_exceptions_does_not_hide_that_a_value_was_needed() -> None:
    def look(x: Tensor) -> bool:
        try:
            return bool(x.sum() > 0)
        except Exception:  # noqa: BLE001 (what a careless model does)
            return False

    addresses = nncfx.wrap(Branching(look), INPUTS).nncf.graph.addresses
    assert any(address.endswith("sigmoid_0") for address in addresses)


@pytest.mark.parametrize(
    "follow",
    [
        torch.relu,
        lambda x: x.repeat_interleave(2, dim=1),
        lambda x: torch.repeat_interleave(x, repeats=2),
    ],
)
def test_contractions_are_not_computed(follow: Callable[[Tensor], Tensor]) -> None:
    seen = []

    def forward(m: Function, x: Tensor) -> Tensor:
        x = m.conv(x)
        seen.append(x)
        return follow(x)

    model = Function(forward, conv=nn.Conv2d(3, 8, 3, padding=1))
    trace_of_shapes(model, torch.rand(1, 3, 200, 200))
    assert len(seen) == 1
    assert not seen[0].any()


class Everything(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.lstm = nn.LSTM(64, 32, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(self.conv(x)).to(memory_format=torch.channels_last)
        x = x.permute(0, 2, 3, 1).reshape(1, -1, 64)
        x = self.attention(x, x, x)[0]
        x = F.scaled_dot_product_attention(x, x, x) + torch.einsum("bij,bkj->bik", x, x) @ x
        return self.lstm(x)[0]


def test_the_trace_without_values_is_the_trace_with_them() -> None:
    model, inputs = Everything().eval(), torch.rand(1, 3, 66, 66)
    assert trace_of_shapes(model, inputs) == trace_with_wiring(model, inputs)


def test_inputs_that_the_model_refuses_are_explained_as_before() -> None:
    with pytest.raises(TracingError, match="refuses the example inputs: RuntimeError: mat1 and"):
        nncfx.wrap(nn.Linear(SIDE, SIDE), torch.rand(300, SIDE + 1))


def test_under_autocast_types_are_those_of_autocast() -> None:
    model = nn.Linear(SIDE, SIDE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph = nncfx.wrap(model, INPUTS).nncf.graph
    assert graph.outputs[0].dtype == "bfloat16"


class Keeping(nn.Module):
    """Computes a value in its first forward and keeps it, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.position = nn.Linear(SIDE, SIDE)
        self.cached: Tensor | None = None
        self.by_size: dict[int, Tensor] = {}
        self.listed: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "attribute":
            if self.cached is None:
                self.cached = self.position(torch.ones(SIDE, SIDE))
            return x @ self.cached
        if self.way == "new attribute":
            if "late" not in self.__dict__:
                self.late = (self.position(torch.ones(SIDE, SIDE)),)
            return x @ self.late[0]
        if self.way == "list":
            if not self.listed:
                self.listed.append(self.position(torch.ones(SIDE, SIDE)))
            return x @ self.listed[0]
        if SIDE not in self.by_size:
            self.by_size[SIDE] = self.position(torch.ones(SIDE, SIDE))
        return x @ self.by_size[SIDE]


@pytest.mark.parametrize("way", ["attribute", "new attribute", "list", "dict"])
def test_a_value_that_a_model_keeps_is_computed_in_the_first_real_forward(way: str) -> None:
    model = Keeping(way)
    expected = INPUTS @ model.position(torch.ones(SIDE, SIDE))
    assert torch.equal(nncfx.wrap(model, INPUTS)(INPUTS), expected)


@cache
def table_of(size: int) -> Tensor:
    """Return a table that all later forwards of all models read."""
    angles = torch.arange(size)[:, None] * torch.linspace(0, 1, size)
    return angles.sin() @ angles.cos()


def test_a_table_that_a_function_keeps_for_all_models_is_computed() -> None:
    model = Function(lambda m, x: m.first(x) @ table_of(SIDE), first=nn.Linear(SIDE, SIDE))
    wrapped = nncfx.wrap(model, INPUTS)
    expected = model.first(INPUTS) @ table_of.__wrapped__(SIDE)
    assert torch.equal(wrapped(INPUTS), expected)


class KeepingForShape(nn.Module):
    """Keeps a value and the shape that it is for, as YOLO's heads keep their anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Linear(SIDE, SIDE)
        self.shape: torch.Size | None = None
        self.cached = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        if self.shape != x.shape:
            self.shape, self.cached = x.shape, self.position(torch.ones(SIDE, SIDE))
        return x @ self.cached


def test_what_says_that_a_value_is_kept_goes_with_the_value() -> None:
    model = KeepingForShape()
    expected = INPUTS @ model.position(torch.ones(SIDE, SIDE))
    assert torch.equal(nncfx.wrap(model, INPUTS)(INPUTS), expected)


class Recording(nn.Module):
    """Registers a hook in its first forward, as models of transformers do, and tells so."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Linear(SIDE, SIDE)
        self.is_recording = False
        self.recorded: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_recording:
            self.is_recording = True
            self.position.register_forward_hook(lambda *call: self.recorded.append(call[2]))
        self.recorded.clear()
        self.position(x)
        return torch.cat(self.recorded)


def test_hooks_that_a_model_registers_go_with_what_says_that_they_are_there() -> None:
    model = Recording()
    nncfx.wrap(model, INPUTS)
    assert model(INPUTS).shape == INPUTS.shape


def test_a_value_that_was_kept_before_wrapping_stays() -> None:
    model = Keeping("dict")
    model(INPUTS)
    kept = model.by_size[SIDE]
    nncfx.wrap(model, INPUTS)
    assert model.by_size[SIDE] is kept


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_skipped_convolution_has_the_shape_of_a_computed_one(
    stride: int, dilation: int, groups: int
) -> None:
    for size, kernel, padding in (((64, 63), (3, 2), (0, 2)), ((61, 64), (1, 5), (3, 0))):
        layer = nn.Conv2d(16, 8, kernel, stride, padding, dilation, groups)
        image = torch.zeros(2, 16, *size)
        found = trace_of_shapes(layer, image).graph.operations[0].outputs[0].shape
        assert found == tuple(layer(image).shape)


@pytest.mark.parametrize(
    "model",
    [
        nn.Conv2d(16, 8, 3),  # reads other channels than there are
        nn.Sequential(nn.Conv2d(32, 16, 3), nn.BatchNorm2d(8)),
        nn.Sequential(nn.Conv2d(32, 16, 3), nn.Conv2d(16, 8, 99)),
    ],
)
def test_layers_that_torch_refuses_are_refused_without_computing(model: nn.Module) -> None:
    with pytest.raises(TracingError):
        trace_of_shapes(model, torch.zeros(1, 32, 64, 64))


def test_norms_after_a_skipped_layer_are_not_computed() -> None:
    norm = nn.BatchNorm2d(16).double()
    model = nn.Sequential(nn.Conv2d(16, 16, 3).double(), norm)
    with torch.no_grad():
        norm.bias.fill_(torch.nan)
    seen: list[Tensor] = []
    norm.register_forward_hook(lambda _, __, result: seen.append(result))
    found = trace_of_shapes(model, torch.zeros(1, 16, 99, 99, dtype=torch.float64))
    assert found.graph.operations[1].outputs[0].dtype == "float64"
    assert not seen[0].isnan().any()


class Activated(nn.Module):
    """Joins, normalises and activates, in place and not, results of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.wide = nn.BatchNorm2d(35)

    def forward(self, x: Tensor) -> Tensor:
        first = self.conv(x)
        second = self.norm(first)
        third = F.relu(second, inplace=True)
        fourth = F.hardswish(third) + first
        fourth[:, :2] = torch.sigmoid(first)[:, :2]
        fifth = torch.cat([first, fourth, F.gelu(x)[..., 1:-1, 1:-1]], dim=-3)
        sixth = F.silu(self.wide(fifth))
        return torch.cat([torch.cat([first, third], 1), sixth], 1).flatten(1)


def test_what_passes_through_what_was_not_computed_is_traced_as_with_values() -> None:
    """Aliases of results that hold nothing are results of their own in the graph."""
    model, inputs = Activated().eval(), torch.rand(2, 3, 130, 130)
    assert trace_of_shapes(model, inputs) == trace_with_wiring(model, inputs)


class Arithmetic(nn.Module):
    """Adds and multiplies results of convolutions: gates, residuals, numbers, in place and not."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.gate = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1)
        self.scale = nn.Parameter(torch.full((16, 1, 1), torch.nan))

    def forward(self, x: Tensor) -> Tensor:
        first = self.conv(x)
        gate = torch.sigmoid(self.gate(F.adaptive_avg_pool2d(first, 1)))
        second = first * gate + gate * first
        second += first
        third = 2 * second.sub(1) - torch.add(first, second, alpha=2)
        fourth = third.mul_(self.scale) + first.double()
        fifth = fourth + first.permute(0, 1, 3, 2).permute(0, 1, 3, 2) * first[:1]
        return torch.relu_(F.hardtanh(fifth, -1.0, 1.0, inplace=True))


def test_sums_and_products_of_what_was_not_computed_are_traced_as_with_values() -> None:
    model, inputs = Arithmetic().eval(), torch.rand(2, 3, 66, 66)
    assert trace_of_shapes(model, inputs) == trace_with_wiring(model, inputs)


def test_sums_and_products_of_what_was_not_computed_are_not_computed() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        x = m.conv(x)
        made.append(x * m.scale + x)
        return made[0]

    model = Function(
        forward, conv=nn.Conv2d(3, 16, 3), scale=nn.Parameter(torch.full((16, 1, 1), torch.nan))
    )
    made: list[Tensor] = []
    trace_of_shapes(model, torch.rand(1, 3, 99, 99))
    assert not made[0].isnan().any()


@pytest.mark.parametrize(
    "write",
    [
        # torch refuses this one if the two overlap
        lambda first, second: first.transpose(2, 3).mul_(second),
        lambda first, second: first.__setitem__((slice(None), slice(8)), second[:, 8:]),
        lambda first, second: torch.maximum(first[:, :8], second[:, 8:], out=first[:, 8:]),
    ],
)
def test_writes_to_what_was_not_computed_are_traced_as_with_values(
    write: Callable[[Tensor, Tensor], object],
) -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        first, second = m.conv(x), m.other(x)
        write(first, second)
        return first + second

    model = Function(forward, conv=nn.Conv2d(3, 16, 3), other=nn.Conv2d(3, 16, 3))
    assert trace_of_shapes(model, IMAGE) == trace_with_wiring(model, IMAGE)


def test_a_sum_that_torch_refuses_is_refused() -> None:
    model = Function(
        lambda m, x: m.one(x) + m.other(x), one=nn.Conv2d(3, 16, 3), other=nn.Conv2d(3, 8, 3)
    )
    with pytest.raises(TracingError, match="The size of tensor a"):
        trace_of_shapes(model, torch.rand(1, 3, 99, 99))


class Beside(nn.Module):
    """Convolves its input, and activates a norm of the input and of a parameter in place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3)
        self.norm = nn.BatchNorm2d(3)
        self.position = nn.Parameter(torch.randn(1, 3, 150, 150))

    def forward(self, x: Tensor) -> Tensor:
        first = self.conv(x)
        second = F.relu(self.norm(x), inplace=True).add_(7)
        third = F.relu(self.norm(self.position), inplace=True).add_(7)
        return first.mean() + second.mean() + third.mean()


def test_inputs_and_parameters_are_as_they_were_after_changes_in_place() -> None:
    """Only results of the trace itself share memory with what is made of them."""
    model, inputs = Beside().eval(), torch.randn(2, 3, 150, 150)
    before = inputs.clone(), model.position.detach().clone()
    trace_of_shapes(model, inputs)
    assert torch.equal(inputs, before[0])
    assert torch.equal(model.position, before[1])


@pytest.mark.parametrize("dim", [2, -5, 4])
def test_a_concatenation_that_torch_refuses_is_refused(dim: int) -> None:
    """Shapes that do not fit, and axes that are not there, are torch's own errors."""
    model = Function(
        lambda m, x: torch.cat([m.one(x), m.other(x)], dim),
        one=nn.Conv2d(3, 16, 3),
        other=nn.Conv2d(3, 8, 3),
    )
    with pytest.raises(
        TracingError, match=r"refuses the example inputs: (RuntimeError|IndexError)"
    ):
        trace_of_shapes(model, torch.rand(1, 3, 200, 200))


@pytest.mark.parametrize("size", [1, (1, 1), (2, 3), (None, 1), (1, None)])
def test_a_pool_of_what_was_not_computed_has_the_shape_of_a_computed_one(
    size: int | tuple[int | None, int | None],
) -> None:
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.AdaptiveAvgPool2d(size), nn.Hardsigmoid())
    model, inputs = model.eval(), torch.rand(2, 3, 130, 130)
    assert trace_of_shapes(model, inputs) == trace_with_wiring(model, inputs)


class Grouped(nn.Module):
    """Experts of transformers in float32, which torch's product takes on a device alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 64, 512))
        self.register_buffer("ends", torch.tensor([2, 4, 6, 8], dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        return torch._grouped_mm(x, self.weight, offs=self.ends)


def test_a_product_that_torch_refuses_on_meta_is_computed() -> None:
    with torch.device("meta"):
        model = Grouped()
    graph = trace_of_shapes(model, torch.randn(8, 64)).graph
    assert graph.operations[-1].outputs[0].shape == (8, 512)
