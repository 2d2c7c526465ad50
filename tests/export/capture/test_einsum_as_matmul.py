"""Einsums are computed as the matrix products that they are, in integers."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.export.capture.einsum_as_matmul import einsum
from nncfx.quantization import integer_arithmetic, plan_quantizers
from nncfx.runtimes import integer_kernels
from nncfx.targets import hardware_named
from onnx_files import run_file
from small_models import Function

EQUATIONS = {
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5)),
    "bihd,bjhd->bhij": ((2, 4, 3, 5), (2, 6, 3, 5)),
    "b n c, c h d -> b n h d": ((2, 3, 4), (4, 5, 6)),
    "bnhd,hdc->bcn": ((2, 3, 4, 5), (4, 5, 6)),
    "...qd,...kd->...qk": ((2, 3, 5, 7), (2, 3, 6, 7)),
    "...i,ij": ((2, 3, 4), (4, 5)),
    "bxyd,bzd->bxyz": ((2, 3, 4, 5), (2, 6, 5)),
    "bnc,c->bn": ((2, 3, 4), (4,)),
    "n,n->": ((3,), (3,)),
    "bij,bjk->bik": ((1, 3, 4), (2, 4, 5)),
    "i,j->ij": ((3,), (4,)),
    "ij,jk,kl->il": ((3, 4), (4, 5), (5, 2)),
    "ii->i": ((3, 3),),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_einsum_is_what_torch_computes(equation: str) -> None:
    operands = [torch.randn(shape, dtype=torch.float64) for shape in EQUATIONS[equation]]
    torch.testing.assert_close(einsum(equation, *operands), torch.einsum(equation, *operands))
    torch.testing.assert_close(einsum(equation, operands), torch.einsum(equation, *operands))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(8, 24)
        self.project = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = self.read(x).unflatten(-1, (3, 2, 4)).unbind(2)
        weights = torch.einsum("b i h d, b j h d -> b h i j", queries, keys).softmax(-1)
        return self.project(torch.einsum("bhij,bjhd->bihd", weights, values).flatten(2))


class Layers(nn.Module):
    """Two linear layers with the axes that JAX's attention has: some of several letters."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Parameter(torch.randn(8, 2, 4) * torch.arange(1.0, 5))
        self.narrow = nn.Parameter(torch.randn(2, 4, 5) / torch.arange(1.0, 6))

    def forward(self, x: Tensor) -> Tensor:
        heads = torch.einsum("bnc,chd->bnhd", x, self.widen).relu()
        return torch.einsum("bnhd,hdc->bnc", heads, self.narrow)


class Left(nn.Module):
    """Mixes positions by a matrix on the left, as MLP-Mixers do."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.randn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("mn,bnc->bmc", self.mix, x)


PRODUCTS = {Attention: 4, Layers: 2, Left: 1}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_quantized_einsum_is_in_integers_for_any_batch(
    kind: type[nn.Module], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(3, 6, 8)
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "einsum.onnx", x[:2])
    kernels = integer_kernels(file.path, x)
    assert (len(kernels.integer), len(kernels.float)) == (PRODUCTS[kind], 0)
    (found,) = run_file(file.path, x)
    with torch.no_grad(), integer_arithmetic(quantized):
        expected = quantized(x).numpy()
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_each_output_of_a_weight_has_its_scale() -> None:
    quantized = nncfx.quantize(Layers().eval(), [torch.randn(3, 6, 8)])
    scales = {str(one.site): one.hook.scale for one in quantized.nncf.hooks}
    assert len(scales["widen"]) == 4  # d, the longest of the output axes h and d
    assert len(scales["narrow"]) == 5


def test_an_einsum_that_is_no_matrix_product_stays_in_float() -> None:
    model = Function(
        lambda m, x: m.write(torch.einsum("bi,bj->bij", y := m.read(x), y)),
        read=nn.Linear(8, 8),
        write=nn.Linear(8, 8),
    )
    graph = nncfx.wrap(model, torch.randn(3, 8)).nncf.graph
    plan = plan_quantizers(graph, hardware_named("onnxruntime"))
    reasons = {one.address: one.reason for one in plan.float_operations}
    assert reasons == {"Function/einsum_0": "it is not a product of two matrices"}
    (read,) = (one for one in plan.activations if "einsum" in one.name)
    assert read.operations == ("Function/Linear[write]/linear_0",)
