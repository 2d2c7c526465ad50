"""What ONNX Runtime's kernels in float32 return, bit by bit: pure functions on tensors.

Between integers some operations are computed in float. Where torch and the runtime round another
last bit, an element that is close to the middle of two integers is quantized to the other one.

The polynomials are those of kernels for x86 with FMA: an addition to a product that is not rounded
before. The formulas were compared with the runtime's, element by element, in
`tests/quantization/simulation/test_float_kernels.py`.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import along_axis
from nncfx.quantization.simulation.integer_sums import BatchNorm, Pending

_LARGEST_LOGIT: Final = 18.0
"""Beyond it the polynomials hold no more; the result is 0 or 1 there."""
_NUMERATOR: Final = (
    *(4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05),
    *(8.51377133304701e-03, 2.48287947061529e-01),
)
_DENOMINATOR: Final = (
    *(6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06),
    *(1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01),
)
_AT_ONCE: Final = 4
"""Channels that the product kernel sums up before it adds them to the others."""


def logistic(x: Tensor) -> Tensor:
    """Return `1 / (1 + exp(-x))` of float32 elements, by a quotient of polynomials.

    Source: ONNX Runtime 1.31, `MlasLogisticKernel`.
    """
    x = x.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT)
    square = x * x
    return (_polynomial(square, _NUMERATOR) * x / _polynomial(square, _DENOMINATOR) + 0.5).clamp(
        0.0, 1.0
    )


def hard_sigmoid(x: Tensor) -> Tensor:
    """Return `x / 6 + 1 / 2` within [0, 1], of float32 elements.

    Source: ONNX Runtime 1.31, `HardSigmoid` with the constant that torch's exporter writes.
    """
    return (x * torch.tensor(1 / 6, dtype=torch.float32, device="cpu") + 0.5).clamp(0.0, 1.0)


def normalized(x: Tensor, norm: BatchNorm) -> Tensor:
    """Return `x`, n x c x *, behind a batch norm: scaled, and then shifted.

    Source: ONNX Runtime 1.31, `BatchNorm<float>`.
    """
    # torch's square root in float32 is not always the nearest number; through float64 it is
    deviation = torch.sqrt((norm.variance + norm.epsilon).double()).float()
    factor = 1 / deviation
    if norm.weight is not None:
        factor = factor * norm.weight
    shift = -norm.mean * factor
    if norm.bias is not None:
        shift = norm.bias + shift
    return x * along_axis(factor, x, 1) + along_axis(shift, x, 1)


def channel_mean(x: Tensor) -> Tensor:
    """Return the mean over the second of at least three axes: n x 1 x *, float32.

    One example is summed up channel by channel, several are by a product with ones, whose kernel
    sums up four channels before it adds them.

    Source: ONNX Runtime 1.31, `ReduceMean`, `ReduceAggregatorSum::FastReduceKRK`.
    """
    size = 1 if x.shape[0] == 1 else _AT_ONCE
    # what is left of four is taken by two, and by one
    whole = x.shape[1] - x.shape[1] % size
    blocks = [range(first, first + size) for first in range(0, whole, size)]
    rest = x.shape[1] - whole
    pair = rest // 2 * 2
    blocks += [range(whole, whole + pair)] if pair else []
    blocks += [range(whole + pair, x.shape[1])] if rest - pair else []
    total = torch.zeros_like(x[:, 0])
    for block in blocks:
        part = x[:, block.start]
        for channel in block[1:]:
            part = part + x[:, channel]
        total = total + part
    return (total / x.shape[1]).unsqueeze(1)


def resized(
    x: Tensor, size: tuple[int, int], scales: tuple[float, float], *, align_corners: bool
) -> Tensor:
    """Return images, n x c x h x w, in another size: bilinear, float32.

    Args:
        x: The images.
        size: Height and width that they get.
        scales: What height and width are multiplied by, as was asked; of sizes, the quotients.
        align_corners: Let the middles of the corner pixels stay where they are, not the corners.

    Source: ONNX Runtime 1.31, `Resize`, `UpsampleBilinear`.
    """
    top, bottom, above, below = _neighbours(x.shape[2], size[0], scales[0], align_corners)
    left, right, before, behind = _neighbours(x.shape[3], size[1], scales[1], align_corners)
    above, below = above[:, None], below[:, None]
    upper, lower = x[:, :, top], x[:, :, bottom]
    return (
        behind * below * upper[..., left]
        + before * below * upper[..., right]
        + behind * above * lower[..., left]
        + before * above * lower[..., right]
    )


def _neighbours(
    length: int, wanted: int, scale: float, align_corners: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the two pixels between which each new one lies, and how far from either."""
    places = torch.arange(wanted, dtype=torch.float32, device="cpu")
    if align_corners:
        places = places * (length - 1) / max(wanted - 1, 1)
    else:
        places = (places + 0.5) / torch.tensor(scale, dtype=torch.float32, device="cpu") - 0.5
    places = places.clamp(0, length - 1)
    first = places.long()
    second = (first + 1).clamp(max=length - 1)
    # at the border both are one pixel, which then counts half as the one and as the other
    to_first, to_second = (
        torch.where(first == second, 0.5, (places - one).abs()) for one in (first, second)
    )
    return first, second, to_first, to_second


def average_pooled(mean: Tensor) -> Pending:
    """Return means of windows of quantized numbers, float32, to be quantized.

    The zero point is added before they are rounded, which decides ties otherwise than behind it.

    Source: ONNX Runtime 1.31, `QLinearAveragePool`.
    """

    def quantized(scale: Tensor, zero_point: Tensor) -> Tensor:
        return torch.round(mean / scale + zero_point) - zero_point

    return quantized


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Return a polynomial, the highest power first, by Horner's rule with one rounding a step."""
    first, *others = torch.tensor(coefficients, dtype=torch.float32, device="cpu")
    result: Tensor = first.expand_as(x)
    for one in others:
        # the product of two float32 numbers is exact in float64
        result = (result.double() * x.double() + one.double()).float()
    return result
