"""Columns of a weight, rounded by a compiled loop."""

import pytest
import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.rounding import gptq
from nncfx.quantization.rounding.curvature import curvature
from nncfx.storage.compiled import IS_COMPILED

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="needs numba")

SPECS = {
    "int8 by row": QuantizerSpec(axis=0, narrow=True),
    "int4 in groups": QuantizerSpec(bits=4, group=43),
    "uint4 in groups": QuantizerSpec(bits=4, mode="asymmetric", signed=False, group=43),
    "per tensor": QuantizerSpec(bits=3),
}


def grid_of(weight: Tensor, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    rows = weight if spec.group is None else weight.reshape(-1, spec.group)
    if spec.group is None and spec.axis is None:
        return qparams_from_range(weight.amin(), weight.amax(), spec)
    return qparams_from_range(rows.amin(1), rows.amax(1), spec)


@pytest.mark.parametrize("outputs", [1, 130])
@pytest.mark.parametrize("kind", SPECS)
def test_it_rounds_as_the_loop_of_torch_does(
    kind: str, outputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """172 columns are more than a block of 128, and no multiple of parts of 16."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(outputs, 172, generator=generator)
    weight[weight.abs() < 0.2] = 0
    mixing = torch.randn(172, 172, generator=generator)
    data = torch.randn(300, 172, generator=generator) @ mixing
    known, spec = curvature(data.T @ data / 300), SPECS[kind]
    scale, zero_point = grid_of(weight, spec)
    monkeypatch.setattr(gptq, "_WORTH_COMPILING", 0)
    found = gptq.round_matrix(weight, known, scale, zero_point, spec)
    monkeypatch.setattr(gptq, "IS_COMPILED", False)
    assert not found.values[weight == 0].any()
    plain = gptq.round_matrix(weight, known, scale, zero_point, spec)
    # a product that is fused with its sum may turn a tie, which changes no loss
    assert (found.values != plain.values).double().mean() < 1e-3
    torch.testing.assert_close(found.errors, plain.errors, rtol=1e-6, atol=1e-9)
    assert found.errors.sum() < 0.9 * found.nearest_errors.sum()
