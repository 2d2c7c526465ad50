"""Hooks whose buffers are as they were set: masks, codes and grids, of which no average is one."""

import abc
from typing import Self

from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import CompressionError


class ExactHook(nn.Module, abc.ABC):
    """A hook that tells, in evaluation mode, where its buffers were averaged with the weights."""

    @override
    def train(self, mode: bool = True) -> Self:
        """Set the mode; in evaluation mode the buffers are what is claimed, and must be whole.

        Raises:
            CompressionError: they hold what nothing has set.
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
        """Return what the buffers hold that nothing has set, in words; nothing of whole ones."""


def fractions(mask: Tensor) -> str:
    """Return what a mask holds beside zeros and ones, in words; nothing of a whole one.

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
