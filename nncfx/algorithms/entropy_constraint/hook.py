"""The hook that rounds a weight to its grid."""

from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.controllers.masks.exact_hook import ExactHook
from nncfx.schemes.rate_distortion.entropy_grid import TABLE, EntropyGrid


@final
class GridHook(ExactHook):
    """Rounds a weight to its grid; without a grid, the weight passes bitwise.

    Attributes:
        step: As in `EntropyGrid`, like the other buffers; 0 without a grid.
        is_active: Whether there is a grid.
    """

    step: Tensor
    bits: Tensor
    thresholds: Tensor
    slope: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        sizes = {"step": (), "bits": (TABLE + 1,), "thresholds": (TABLE,), "slope": ()}
        for name, size in sizes.items():
            self.register_buffer(
                name, torch.zeros(size, dtype=torch.float32, device=weight.device)
            )
        self.is_active = False

    @property
    def grid(self) -> EntropyGrid:
        """The grid in use."""
        return EntropyGrid(self.step, self.bits, self.thresholds, self.slope)

    @override
    def forward(self, weight: Tensor) -> Tensor:
        return self.grid.rounded(weight) if self.is_active else weight

    def take(self, grid: EntropyGrid | None) -> None:
        """Set the grid; None turns rounding off."""
        self.is_active = grid is not None
        if grid is None:
            self.step.zero_()
            return
        for name in ("step", "bits", "thresholds", "slope"):
            getattr(self, name).copy_(getattr(grid, name))

    @override
    def _fault(self) -> str:
        if self.is_active or not self.step:
            return ""
        return f"A grid has a step of {float(self.step):.3g} where none was set"

    @override
    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.is_active, device="cpu")

    @override
    def set_extra_state(self, state: Tensor) -> None:
        self.is_active = bool(state)
        if not self.is_active:  # older states hold the last step
            self.step.zero_()
