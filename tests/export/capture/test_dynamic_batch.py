"""Which axes of the example inputs stay open."""

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.export import export_onnx
from nncfx.export.capture.dynamic_batch import batch_size, batched_call
from onnx_files import run_file


def test_one_example_is_repeated_and_more_are_not() -> None:
    (args, _), _ = batched_call(((torch.ones(1, 3), torch.ones(1)), {}))
    assert [tuple(arg.shape) for arg in args] == [(2, 3), (2,)]
    (args, _), _ = batched_call(((torch.ones(4, 3),), {}))
    assert args[0].shape == (4, 3)


def test_only_axes_as_long_as_the_batch_are_open() -> None:
    _, (axes, _) = batched_call(((torch.ones(4, 3), torch.ones(3, 4), 7), {}))
    assert [axis and list(axis) for axis in axes] == [[0], {}, None]


def test_keyword_inputs_are_open_by_name() -> None:
    _, (_, axes) = batched_call(((), {"a": torch.ones(2, 3), "flag": None}))
    assert list(axes) == ["a", "flag"]
    assert list(axes["a"]) == [0]


@dataclass
class Held:
    """Not registered with torch.export, which does not look inside."""

    x: torch.Tensor


@pytest.mark.parametrize(
    "call", [((3,), {}), ((torch.tensor(1.0),), {}), ((Held(torch.ones(2, 3)),), {})]
)
def test_inputs_without_an_axis_are_refused(
    call: tuple[tuple[object, ...], dict[str, object]],
) -> None:
    with pytest.raises(
        ArgumentError, match=r"no tensor with an axis that torch.export sees.*register_dataclass"
    ):
        batch_size(call)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a batch of 0"):
        batch_size(((torch.ones(0, 3),), {}))


class Scaled(nn.Module):
    """Takes what it multiplies with as one of its options."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor, **options: Tensor) -> Tensor:
        return self.linear(x) * options["scale"]


def test_options_of_a_forward_have_an_open_batch(tmp_path: Path) -> None:
    model, path = Scaled().eval(), tmp_path / "scaled.onnx"
    export_onnx(model, path, {"x": torch.randn(2, 3), "scale": torch.rand(2, 1)})
    x, scale = torch.randn(5, 3), torch.rand(5, 1)
    [found] = run_file(path, {"x": x, "scale": scale})
    torch.testing.assert_close(torch.as_tensor(found), model(x, scale=scale).detach())
    assert "forward" not in vars(model)


@dataclass
class Pair:
    """Registered with torch.export."""

    x: Tensor
    scales: list[Tensor]


torch.export.register_dataclass(Pair)


class ScaledPair(nn.Module):
    """Takes its tensors in a dataclass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, pair: Pair) -> Tensor:
        return self.linear(pair.x) * pair.scales[0]


def test_tensors_in_a_registered_dataclass_have_an_open_batch(tmp_path: Path) -> None:
    model, path = ScaledPair().eval(), tmp_path / "pair.onnx"
    export_onnx(model, path, (Pair(torch.randn(2, 3), [torch.rand(2, 1)]),))
    x, scale = torch.randn(5, 3), torch.rand(5, 1)
    [found] = run_file(path, {"pair_x": x, "pair_scales_0": scale})
    expected = model(Pair(x, [scale])).detach()
    torch.testing.assert_close(torch.as_tensor(found), expected)
