"""Remove dead channels from a model, exactly."""

from nncfx.schemes.masks.alignment import ALIGNMENTS, Alignment
from nncfx.thinning.files.recipe import ThinRecipe, rebuild, thin_optimizer
from nncfx.thinning.files.thin_file import load_thinned, save_thinned
from nncfx.thinning.probing import prunable_channels
from nncfx.thinning.thin import ThinResult, thin

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
