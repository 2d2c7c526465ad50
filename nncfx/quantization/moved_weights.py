"""Weights that were changed behind their quantizers' ranges: `warn_moved_weights`."""

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
"""Times the error of rounding, step^2 / 12: what ranges clip on purpose is hardly more than it."""
_NAMED: Final = 5


@torch.no_grad()
def warn_moved_weights(model: NNCFNetwork) -> None:
    """Warn of weights that lie so far outside of the ranges they had, that these harm them.

    It is so where somebody adds to them after calibration, as PEFT's `merge_adapter()` does.

    Args:
        model: Its quantizers are constants. Grids that are or were learned went with their weights
            and clip these as training had it: they are passed over.
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
