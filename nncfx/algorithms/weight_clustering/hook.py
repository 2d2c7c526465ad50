"""The hook that replaces the weights of a layer by shared values."""

from typing import Any, Final, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.controllers.masks.exact_hook import ExactHook
from nncfx.errors import StorageError
from nncfx.float64 import float64_device
from nncfx.pieces import in_pieces
from nncfx.schemes.kmeans import nearest

DENSE_BITS: Final = 32
_BYTE: Final = 256


def bits_of_level(level: float) -> int:
    """Return the bits of a code at `level`, the saved fraction of float32's bits.

    >>> bits_of_level(1 - 5 / 32), bits_of_level(0.0), bits_of_level(0.999)
    (5, 32, 1)
    """
    return max(1, round(DENSE_BITS * (1 - level)))


def shared_values(weight: Tensor, codes: Tensor, size: int, *, summed: bool = False) -> Tensor:
    """Replace each weight by the mean of the weights with its code.

    Zero weights and weights of code 0 are left out of the means and are zero. The gradient of a
    weight is the mean of the gradients of the weights that share its value, or their sum if
    `summed`.

    Args:
        weight: Any shape.
        codes: int32, of the same shape, in [0, `size`).
        size: Number of codes.
        summed: Whether gradients are summed rather than averaged.

    >>> weight = torch.tensor([1.0, 3.0, 0.0, 8.0])
    >>> shared_values(weight, torch.tensor([1, 1, 1, 2], dtype=torch.int32), 3)
    tensor([2., 2., 0., 8.])
    """
    shared: Tensor = _Shared.apply(weight, codes, size, summed)  # type: ignore[no-untyped-call]  # torch
    return shared


class _Shared(torch.autograd.Function):
    """Computes the means piece by piece to save memory, with codes of one byte."""

    @staticmethod
    @override
    def forward(ctx: Any, weight: Tensor, codes: Tensor, size: int, summed: bool) -> Tensor:
        dtype = torch.uint8 if size <= _BYTE else codes.dtype
        alive = torch.empty_like(codes, dtype=dtype, memory_format=torch.contiguous_format)
        for into, each, values in in_pieces(alive, codes, weight):
            into.copy_(each * (values != 0))
        counts = _sums(weight.new_ones(1).expand(weight.shape), alive, size).clamp_(min=1)
        ctx.save_for_backward(alive, torch.ones_like(counts) if summed else counts)
        return _spread(_sums(weight, alive, size) / counts, alive, weight)

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        alive, counts = ctx.saved_tensors
        means = _sums(grads[0], alive, len(counts)) / counts
        return _spread(means, alive, grads[0]), None, None, None


def _sums(values: Tensor, codes: Tensor, size: int) -> Tensor:
    """Return the sum of the values of each code; 0 for code 0.

    A sum of ones would stop growing at 2^24 in float32, and at 256 in bfloat16.
    """
    has_float64 = float64_device(values) == values.device
    sums = values.new_zeros(size, dtype=torch.float64 if has_float64 else torch.float32)
    for each, code in in_pieces(values, codes):
        sums.index_add_(0, code.int(), each.to(sums.dtype))
    sums[0] = 0
    return sums


def _spread(means: Tensor, codes: Tensor, like: Tensor) -> Tensor:
    """Return the entry of `means` for each code, in the dtype and shape of `like`."""
    shared = torch.empty_like(like, memory_format=torch.contiguous_format)
    means = means.to(like.dtype)
    for into, code in in_pieces(shared, codes):
        into.copy_(means.index_select(0, code.int()))
    return shared


@final
class ClusterHook(ExactHook):
    """Replaces the weights of one layer by shared values.

    Attributes:
        codes: int32, one per weight; 0 is zero.
        size: Number of codes; if 1, the weight passes bitwise.
        summed: Whether gradients are summed, as for `shared_values`.
        total: The sum of the codes as they were set; None for hooks pickled by older versions.
    """

    codes: Tensor
    total: int | None = None

    def __init__(self, weight: Tensor, *, summed: bool) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros_like(weight, dtype=torch.int32))
        self.size = 1
        self.summed = summed
        self.total = 0

    @override
    def forward(self, weight: Tensor) -> Tensor:
        if self.size == 1:
            return weight
        return shared_values(weight, self.codes, self.size, summed=self.summed)

    def cluster(self, weight: Tensor, codebook: Tensor) -> None:
        """Assign each non-zero entry of `weight` the nearest value of `codebook`."""
        alive = weight != 0
        self.codes.zero_()
        self.codes[alive] = nearest(weight[alive], codebook).to(torch.int32) + 1
        self.size = codebook.numel() + 1
        self.total = int(self.codes.sum())

    def rest(self) -> None:
        """Turn clustering off, so the weight passes unchanged."""
        self.codes.zero_()
        self.size = 1
        self.total = 0

    @override
    def _fault(self) -> str:
        found = int(self.codes.sum())
        if self.total in {None, found}:
            return ""
        return f"The codes of a weight sum to {found:,} where {self.total:,} was set"

    @override
    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.size, device="cpu")

    @override
    def set_extra_state(self, state: Tensor) -> None:
        self.size = int(state)
        self.total = None
        if self.codes.is_meta or not self.codes.numel():
            return
        low, high = (int(one) for one in self.codes.aminmax())
        if not 0 <= low <= high < max(self.size, 1):
            raise StorageError(
                f"The file is damaged: codes of shared weights lie in {low} to {high}, and there "
                f"are {self.size}. Copy it again from where it was written."
            )
        self.total = int(self.codes.sum())
