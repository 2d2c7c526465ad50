"""Remove dead channels from a model, exactly."""

from nncfx.schemes.masks.alignment import ALIGNMENTS, Alignment
from nncfx.thinning.probing import prunable_channels
from nncfx.thinning.recipe import ThinRecipe, rebuild, thin_optimizer
from nncfx.thinning.thin import ThinResult, thin
from nncfx.thinning.thin_file import load_thinned, save_thinned

__all__ = [
    "ALIGNMENTS",
    "Alignment",
    "ThinRecipe",
    "ThinResult",
    "load_thinned",
    "prunable_channels",
    "rebuild",
    "save_thinned",
    "thin",
    "thin_optimizer",
]
