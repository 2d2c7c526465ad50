"""Values that the weights of a layer share, and the hook that replaces weights by them."""

from typing import Final, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.controllers.masks.exact_hook import ExactHook
from nncfx.errors import StorageError
from nncfx.schemes.kmeans import nearest

DENSE_BITS: Final = 32


def bits_of_level(level: float) -> int:
    """Return the bits of a code at `level`, the fraction of a float32's bits that is saved.

    >>> bits_of_level(1 - 5 / 32), bits_of_level(0.0), bits_of_level(0.999)
    (5, 32, 1)
    """
    return max(1, round(DENSE_BITS * (1 - level)))


def shared_values(weight: Tensor, codes: Tensor, size: int, *, summed: bool = False) -> Tensor:
    """Return each weight as the mean of the weights that have its code.

    Weights that are zero and weights of code 0 are left out of the means and are zero. The
    gradient of a weight is the mean of the gradients of those that share its value, or their sum
    if `summed`.

    Args:
        weight: Any shape.
        codes: int32, of the same shape, in [0, `size`).
        size: How many codes there are.
        summed: Which gradient.

    >>> weight = torch.tensor([1.0, 3.0, 0.0, 8.0])
    >>> shared_values(weight, torch.tensor([1, 1, 1, 2], dtype=torch.int32), 3)
    tensor([2., 2., 0., 8.])
    """
    alive = (codes > 0) & (weight != 0)
    index = torch.where(alive, codes, 0).flatten()
    flat = weight.flatten()
    totals = flat.new_zeros(size).index_add(0, index, flat)
    counts = flat.new_zeros(size).index_add(0, index, torch.ones_like(flat)).clamp(min=1)
    means = totals / counts
    if summed:
        # the difference is zero exactly, and carries the gradient
        means = means.detach() + (totals - totals.detach())
    shared = means.index_select(0, index).view_as(weight)
    return torch.where(alive, shared, 0.0)


@final
class ClusterHook(ExactHook):
    """Lets the weights of one layer share values.

    Attributes:
        codes: int32, one per weight; 0 is zero.
        size: How many codes there are; with one, the weight passes bitwise.
        summed: Which gradient, as for `shared_values`.
        total: The sum of the codes as they were set; None of hooks pickled before it was kept.
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
        """Give each entry of `weight` that is not zero the nearest value of `codebook`."""
        alive = weight != 0
        self.codes.zero_()
        self.codes[alive] = nearest(weight[alive], codebook).to(torch.int32) + 1
        self.size = codebook.numel() + 1
        self.total = int(self.codes.sum())

    def rest(self) -> None:
        """Let the weight pass as it is."""
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
                f"are {self.size}. Copy it anew from where it was written."
            )
        self.total = int(self.codes.sum())
