"""Remove dead channels from a model, exactly."""

from nncfx.thinning.probing import prunable_channels
from nncfx.thinning.thin import ThinResult, thin

__all__ = ["ThinResult", "prunable_channels", "thin"]
