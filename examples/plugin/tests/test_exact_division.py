"""The pass keeps the promises of nncfx's suite, and leaves other divisions alone."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch
from nncfx_random.exact_division import EXACT_DIVISION
from torch import Tensor, nn

from nncfx.export import export_onnx, register_export_pass
from nncfx.testing import PASS_PROMISES, PassSubject


class Divided(nn.Module):
    """A linear layer whose results are divided."""

    def __init__(self, divisor: float) -> None:
        super().__init__()
        self.linear, self.divisor = nn.Linear(8, 4), divisor

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) / self.divisor


def divided() -> nn.Module:
    torch.manual_seed(0)
    return Divided(8.0).eval()


SUBJECT = PassSubject(
    export_pass=EXACT_DIVISION,
    before="remove_unused",
    model=divided,
    inputs=torch.randn(2, 8, generator=torch.Generator().manual_seed(0)),
)


@pytest.mark.parametrize("promise", PASS_PROMISES, ids=lambda one: one.__name__)
def test_the_pass_keeps_the_promise(promise: Callable[[PassSubject], None]) -> None:
    promise(SUBJECT)


@pytest.mark.parametrize(("divisor", "operator"), [(3.0, "Div"), (-0.25, "Mul")])
def test_only_powers_of_two_are_multiplied_with(
    divisor: float, operator: str, tmp_path: Path
) -> None:
    register_export_pass(EXACT_DIVISION, before="remove_unused")
    path = export_onnx(Divided(divisor).eval(), tmp_path / "m.onnx", torch.randn(2, 8)).path
    assert operator in {node.op_type for node in onnx.load(path).graph.node}
