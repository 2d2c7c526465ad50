"""Remove dead channels from a model, exactly."""

from nncfx.thinning.thin import ThinResult, thin

__all__ = ["ThinResult", "thin"]
