"""Hooks with masks, codes or grids in buffers, which must not be averaged."""

import abc
from typing import Self

from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import CompressionError


class ExactHook(nn.Module, abc.ABC):
    """A hook that raises an error in evaluation mode if its buffers were averaged."""

    @override
    def train(self, mode: bool = True) -> Self:
        """Set the mode; for evaluation mode, check the buffers.

        Raises:
            CompressionError: the buffers hold values that were never set.
        """
        super().train(mode)
        if not mode and not next(self.buffers()).is_meta and (fault := self._fault()):
            raise CompressionError(
                f"{fault}: it was averaged with the weights, as by "
                "AveragedModel(use_buffers=True). Call "
                "nncfx.controllers.keep_hooks(averaged, model) after averaging, or leave "
                "use_buffers False."
            )
        return self

    @abc.abstractmethod
    def _fault(self) -> str:
        """Return a description of invalid values in the buffers; "" if they are valid."""


def fractions(mask: Tensor) -> str:
    """Return a description of values other than 0 and 1 in a mask; "" if there are none.

    >>> import torch
    >>> fractions(torch.tensor([0.0, 1.0, 0.5]))
    'A mask holds 0.5, and 1 such values in all, which removes nothing'
    """
    found = mask[(mask != 0) & (mask != 1)]
    if not found.numel():
        return ""
    return (
        f"A mask holds {float(found[0]):.3g}, and {found.numel()} such values in all, which "
        "removes nothing"
    )
