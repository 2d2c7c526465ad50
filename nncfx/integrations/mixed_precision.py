"""What Accelerate leaves at a model that it has prepared for mixed precision."""

from torch import nn

__all__ = ["remove_autocast"]

_ORIGINAL = "_original_forward"


def remove_autocast(model: nn.Module) -> None:
    """Take off the autocast that `Accelerator.prepare` put around the forward of `model`, if any.

    It stands in the module itself, and goes with every copy; no file holds it. The Trainer of
    transformers prepares its model so for `bf16=True`.
    """
    if vars(model).pop(_ORIGINAL, None) is not None:
        vars(model).pop("forward", None)
