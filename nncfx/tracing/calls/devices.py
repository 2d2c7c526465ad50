"""Find the device of a model and move inputs to it."""

from typing import Any

import torch
from torch import nn

from nncfx.tracing.calls.tensors import replaced


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the first parameter of `model`; the CPU if it has none."""
    return next((one.device for one in model.parameters()), torch.device("cpu"))


def on_device(device: torch.device, batch: Any) -> Any:
    """Return `batch` with every tensor inside on `device`."""
    return replaced(batch, lambda one: one.to(device))
