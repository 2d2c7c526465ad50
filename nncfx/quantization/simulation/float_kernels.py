"""Pure functions on tensors that equal ONNX Runtime's float32 kernels bitwise.

Some operations between integers are computed in float. If the results of torch and the runtime
differ in the last bit, an element close to the middle of two integers is quantized differently.

The polynomials are those of kernels for x86 with FMA, which add to an unrounded product. The
formulas are compared with the runtime, element by element, in
`tests/quantization/simulation/test_float_kernels.py`.
"""

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from nncfx.quantization.grid.fake_quantize import along_axis
from nncfx.quantization.simulation.integer_sums import BatchNorm, Pending

_LARGEST_LOGIT: Final = 18.0
"""The polynomials are valid up to this magnitude; beyond it the result is 0 or 1."""
_NUMERATOR: Final = (
    *(4.37031012579801e-11, 1.15627324459942e-07, 6.08574864600143e-05),
    *(8.51377133304701e-03, 2.48287947061529e-01),
)
_DENOMINATOR: Final = (
    *(6.10247389755681e-13, 5.76102136993427e-09, 6.29106785017040e-06),
    *(1.70198817374094e-03, 1.16817656904453e-01, 9.93151921023180e-01),
)
_AT_ONCE: Final = 4
"""Channels that the matrix product kernel sums before it adds them to the others."""


def logistic(x: Tensor) -> Tensor:
    """Return `1 / (1 + exp(-x))` for float32 elements, by a quotient of polynomials.

    Source: ONNX Runtime 1.31, `MlasLogisticKernel`.
    """
    x = x.clamp(-_LARGEST_LOGIT, _LARGEST_LOGIT)
    square = x * x
    return (_polynomial(square, _NUMERATOR) * x / _polynomial(square, _DENOMINATOR) + 0.5).clamp(
        0.0, 1.0
    )


def hard_sigmoid(x: Tensor) -> Tensor:
    """Return `x / 6 + 1 / 2` clamped to [0, 1], for float32 elements.

    Source: ONNX Runtime 1.31, `HardSigmoid` with the constant that torch's exporter writes.
    """
    return (x * torch.tensor(1 / 6, dtype=torch.float32, device="cpu") + 0.5).clamp(0.0, 1.0)


def normalized(x: Tensor, norm: BatchNorm) -> Tensor:
    """Return `x`, n x c x *, after a batch norm: scaled, and then shifted.

    Source: ONNX Runtime 1.31, `BatchNorm<float>`.
    """
    # torch's square root in float32 is not always correctly rounded; through float64 it is
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

    One example is summed channel by channel; several examples are multiplied by ones, in a kernel
    that sums four channels before it adds them.

    Source: ONNX Runtime 1.31, `ReduceMean`, `ReduceAggregatorSum::FastReduceKRK`.
    """
    size = 1 if x.shape[0] == 1 else _AT_ONCE
    # the rest of up to three channels is processed as a pair and a single one
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
        size: New height and width.
        scales: Requested factors of height and width; for requested sizes, the quotients.
        align_corners: Align the centres of the corner pixels instead of the corners.

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
    """Return the two pixels around each new pixel, and its distances from them."""
    places = torch.arange(wanted, dtype=torch.float32, device="cpu")
    if align_corners:
        places = places * (length - 1) / max(wanted - 1, 1)
    else:
        places = (places + 0.5) / torch.tensor(scale, dtype=torch.float32, device="cpu") - 0.5
    places = places.clamp(0, length - 1)
    first = places.long()
    second = (first + 1).clamp(max=length - 1)
    # at the border both are the same pixel, with weight 1/2 each
    to_first, to_second = (
        torch.where(first == second, 0.5, (places - one).abs()) for one in (first, second)
    )
    return first, second, to_first, to_second


def average_pooled(mean: Tensor) -> Pending:
    """Return means of windows of quantized numbers, float32, as a `Pending`.

    The zero point is added before rounding, which decides ties differently than afterwards.

    Source: ONNX Runtime 1.31, `QLinearAveragePool`.
    """

    def quantized(scale: Tensor, zero_point: Tensor) -> Tensor:
        return torch.round(mean / scale + zero_point) - zero_point

    return quantized


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    """Evaluate a polynomial, highest power first, by Horner's rule with one rounding per step."""
    first, *others = torch.tensor(coefficients, dtype=torch.float32, device="cpu")
    result: Tensor = first.expand_as(x)
    for one in others:
        # the product of two float32 numbers is exact in float64
        result = (result.double() * x.double() + one.double()).float()
    return result
