"""Remove dead channels from a model, exactly."""

from nncfx.schemes.alignment import ALIGNMENTS, Alignment
from nncfx.thinning.probing import prunable_channels
from nncfx.thinning.recipe import ThinRecipe, rebuild, thin_optimizer
from nncfx.thinning.thin import ThinResult, thin

__all__ = [
    "ALIGNMENTS",
    "Alignment",
    "ThinRecipe",
    "ThinResult",
    "prunable_channels",
    "rebuild",
    "thin",
    "thin_optimizer",
]
