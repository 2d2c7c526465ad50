"""Files compute what torch does where its exporter writes something else: ONNX Runtime tells."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from onnx_files import run_file
from small_models import Applied

ROWS = torch.tensor([0, 1, 1, 2, 0]).view(1, 5, 1).expand(2, 5, 3)
X = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))


def scattered(x: Tensor, reduce: str, *, include_self: bool) -> Tensor:
    base = torch.linspace(1, 2, 36).view(2, 6, 3).to(x)
    return base.scatter_reduce(1, ROWS[:, :4], x, reduce, include_self=include_self)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "logsigmoid": lambda x: F.logsigmoid(x * 100),
    "cross entropy": lambda x: F.binary_cross_entropy_with_logits(
        x * 100, torch.ones_like(x), reduction="none"
    ),
    "logaddexp": lambda x: torch.logaddexp(x * 100, x.flip(1) * 100),
    "logaddexp of equal infinities": lambda x: torch.logaddexp(x - torch.inf, x - torch.inf),
    "logaddexp2": lambda x: torch.logaddexp2(x * 200, x.flip(1) * 200),
    "log1p of small numbers": lambda x: torch.log1p(x * 1e-6),
    "log1p of zero and the ends": lambda x: torch.log1p(
        torch.cat([x * 0, x * 0 - 1, 1 / (x.abs() * 0)])
    ),
    "log1p": lambda x: torch.log1p(x.abs() * 10),
    "expm1 of small numbers": lambda x: torch.expm1(x * 1e-6),
    "expm1": lambda x: torch.expm1(x * 20),
    "scatter": lambda x: x.new_zeros(2, 6, 3).scatter(1, ROWS[:, [0, 1, 3]], x),
    "scatter_add": lambda x: x.new_zeros(2, 6, 3).scatter_add(1, ROWS[:, :4], x),
    "mean": lambda x: scattered(x, "mean", include_self=False),
    "mean with itself": lambda x: scattered(x, "mean", include_self=True),
    "largest": lambda x: scattered(x, "amax", include_self=False),
    "running logarithms of sums": lambda x: torch.logcumsumexp(x * 100, 1),
    "running products": lambda x: x.cumprod(-2),
    "running products of integers": lambda x: torch.cumprod((x * 3).round().int(), 1) * x,
    "running product of one": lambda x: x.sum().cumprod(0),
    "distances": lambda x: torch.cdist(x, x.flip(1)[:, :2] + 1),
    "distances of many": lambda x: torch.cdist(x.repeat(1, 6, 1), x + 1),
    "distances of one norm": lambda x: torch.cdist(x, x + 1, p=1.0),
    "largest distances": lambda x: torch.cdist(x, x + 1, p=torch.inf),
    "distances of another norm": lambda x: torch.cdist(x, x + 1, p=3.0),
    "hypotenuse": lambda x: torch.hypot(x, x.flip(1)),
    "largest of windows": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
    "largest of windows in one axis": lambda x: F.adaptive_max_pool2d(x, (2, None)),
    "largest of a row's windows": lambda x: F.adaptive_max_pool1d(x.mT, 2),
    "largest of all": lambda x: F.adaptive_max_pool2d(x, 1),
    "largest of boxes": lambda x: F.adaptive_max_pool3d(x[:, None], (2, 3, 1)),
    "product": lambda x: scattered(x, "prod", include_self=True),
    "an axis that is no longer than 1": lambda x: x[:, :1].squeeze(1) * 2,
    "an axis that is longer": lambda x: x.squeeze(1).squeeze(-1) * 2,
    "one of two axes that is longer": lambda x: x[:, :1].squeeze((1, -1)) * 2,
    "the axis of a number": lambda x: x.sum().squeeze(0) * 2,
}


SUMS = {
    "distances of many",
    *("logsigmoid", "cross entropy", "logaddexp", "logaddexp2", "running logarithms of sums"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_file_computes_what_torch_does(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    x = X.to(dtype)
    model = Applied(FUNCTIONS[name])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", x, dynamic_batch=False)
    (found,) = run_file(file, x)
    # what is added to 0 or to a logarithm is right to the last bits of 1
    limits = {"rtol": 1e-5, "atol": 1e-7 if name in SUMS else 1e-30}
    torch.testing.assert_close(torch.as_tensor(found), model(x), **limits)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("factor", [0.7, (0.5, 1.9)])
def test_smoothed_resizes_go_by_the_factor(
    mode: str, factor: float | tuple[float, float], tmp_path: Path
) -> None:
    x = torch.randn(1, 2, 16, 9, generator=torch.Generator().manual_seed(0))
    model = Applied(partial(F.interpolate, scale_factor=factor, mode=mode, antialias=True))
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", x)
    (found,) = run_file(file, x)
    torch.testing.assert_close(torch.as_tensor(found), model(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("is_bool", [True, False])
@pytest.mark.parametrize("is_quantized", [True, False])
def test_a_query_that_may_look_at_no_key_gets_zeros(
    tmp_path: Path, *, is_bool: bool, is_quantized: bool
) -> None:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.all = nn.Linear(6, 24)

        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*self.all(x).chunk(3, -1), attn_mask=mask)

    torch.manual_seed(0)
    x = torch.randn(2, 4, 6)
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    if not is_bool:
        mask = torch.zeros(4, 4).masked_fill(~mask, -torch.inf)
    model = Attention().eval()
    if is_quantized:
        model = nncfx.quantize(model, [{"x": x, "mask": mask}])
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", (x, mask), dynamic_batch=False)
    session = onnxruntime.InferenceSession(file.path)
    (found,) = session.run(None, {"x": x.numpy(), "mask": mask.numpy()})
    expected = model(x, mask)
    assert not expected[:, 2].any()
    torch.testing.assert_close(torch.as_tensor(found), expected, rtol=1e-4, atol=1e-4)
