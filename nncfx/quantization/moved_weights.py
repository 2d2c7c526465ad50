"""Warn of weights that were changed after their quantizers were calibrated."""

import logging
from typing import Final

import torch
from torch import Tensor

from nncfx.controllers.base.weights import constants_of
from nncfx.errors import shortened
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.stored_weights import sole_quantizers
from nncfx.storage.models.whole_models import is_sharded

_LOGGER: Final = logging.getLogger(__name__)
_ALLOWED: Final = 30.0
"""Multiple of the rounding error, step^2 / 12. Ranges that clip on purpose barely exceed 1."""
_NAMED: Final = 5


@torch.no_grad()
def warn_moved_weights(model: NNCFNetwork) -> None:
    """Warn of weights that lie far outside the ranges of their quantizers.

    This happens when weights are changed after calibration, for instance by PEFT's
    `merge_adapter()`.

    Args:
        model: Model with constant quantizers. Grids that are or were learned are skipped: they
            were trained together with the weights that they clip.
    """
    stored = constants_of(model)
    moved = [
        f"'{site}'"
        for site, hook in sole_quantizers(model).items()
        if str(site) in stored and _is_moved(stored[str(site)].detach(), hook)
    ]
    if moved:
        _LOGGER.warning(
            "Weights lie far outside of the ranges of their quantizers, which clip them: %s. "
            "They were changed after these were found. Quantize the model again, after what "
            "changes them, such as PEFT's merge_adapter().",
            shortened(moved, _NAMED),
        )


def _is_moved(weight: Tensor, hook: Quantizer) -> bool:
    if not hook.is_active or not hook.spec.is_integer or hook.is_learned or hook.was_learned:
        return False
    if weight.is_meta or is_sharded(weight) or not weight.numel():
        return False
    wide = weight.float()
    error = (hook(wide) - wide).square().mean()
    rounding = hook.step.float().square().mean() / 12
    return bool(error > _ALLOWED * rounding)
