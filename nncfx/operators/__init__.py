"""Facts of torch's operations that need no model and no graph."""

from nncfx.operators.kinds import CONTRACTIONS, KINDS, MOVEMENTS, operation_kind

__all__ = ["CONTRACTIONS", "KINDS", "MOVEMENTS", "operation_kind"]
