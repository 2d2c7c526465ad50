"""Constant sparsity: the weights that are zero stay zero while the others train on.

Source: NNCF 2.19, "Constant sparsity".
"""

from typing import final

from nncfx.controllers.masks.weight_sparsity import MaskController

__all__ = ["ConstSparsityController"]


@final
class ConstSparsityController(MaskController):
    """Keeps the zeros that were there at the start; its level is 0 and cannot be set."""

    has_level: bool = False
