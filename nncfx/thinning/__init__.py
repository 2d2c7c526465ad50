"""Remove dead channels from a model, exactly."""

from nncfx.targets import Alignment
from nncfx.thinning.files.prune_checkpoint import prune_checkpoint
from nncfx.thinning.files.recipe import ThinRecipe, rebuild, thin_optimizer
from nncfx.thinning.files.thin_file import load_thinned, save_thinned
from nncfx.thinning.probing import prunable_channels
from nncfx.thinning.result import ThinResult
from nncfx.thinning.thin import thin

__all__ = [
    "Alignment",
    "ThinRecipe",
    "ThinResult",
    "load_thinned",
    "prunable_channels",
    "prune_checkpoint",
    "rebuild",
    "save_thinned",
    "thin",
    "thin_optimizer",
]
