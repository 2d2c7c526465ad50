"""Removes changes that Accelerate makes to a model for mixed precision."""

from torch import nn

__all__ = ["remove_autocast"]

_ORIGINAL = "_original_forward"


def remove_autocast(model: nn.Module) -> None:
    """Remove the autocast that `Accelerator.prepare` put around the forward of `model`, if any.

    It is stored in the module itself, so every copy has it but no file. The Trainer of
    transformers prepares its model this way for `bf16=True`.
    """
    if vars(model).pop(_ORIGINAL, None) is not None:
        vars(model).pop("forward", None)
