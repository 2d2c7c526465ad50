"""Where a model is, and inputs brought there."""

from typing import Any

import torch
from torch import nn

from nncfx.tracing.calls.tensors import replaced


def device_of(model: nn.Module) -> torch.device:
    """Return where the first parameter of `model` is; the CPU, if it has none."""
    return next((one.device for one in model.parameters()), torch.device("cpu"))


def on_device(device: torch.device, batch: Any) -> Any:
    """Return `batch` with every tensor inside on `device`."""
    return replaced(batch, lambda one: one.to(device))
