"""The training recipe of a compressed network: optimizer, learning rate, precision."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from nncfx.errors import ArgumentError
from nncfx.processors import cpu_capabilities
from nncfx.schemes.masks.exact_masks import check_at_least

Precision: TypeAlias = Literal["auto", "bfloat16", "float32"]
"""The precision of forward and backward passes; "auto" depends on the device."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """SGD with Nesterov momentum, whose learning rate warms up and decays to zero by a cosine.

    Attributes:
        steps: Optimizer steps in total.
        lr: The highest learning rate, above 0.
        warmup: Fraction of the steps over which the learning rate rises from 0, in [0, 1).
        momentum: In [0, 1).
        weight_decay: For all parameters of the model, at least 0.
        task_weight: Factor on the loss of the task before the controller's loss is added; below 1
            if there is also a teacher.
        steps_per_epoch: Number of steps per epoch of the controller's scheduler: short "epochs"
            update masks often.
        precision: "bfloat16" trains under `torch.autocast`; "auto" does so if the device has fast
            bfloat16 multiplication.

    Raises:
        ArgumentError: a number is out of range.
    """

    steps: int
    lr: float = 0.08
    warmup: float = 0.02
    momentum: float = 0.9
    weight_decay: float = 5e-4
    task_weight: float = 1.0
    steps_per_epoch: int = 50
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        check_at_least("steps", self.steps, 1)
        check_at_least("steps_per_epoch", self.steps_per_epoch, 1)
        faults = {
            "lr": (0 < self.lr < math.inf, "above 0 and finite"),
            "warmup": (0 <= self.warmup < 1, "in [0, 1), a fraction of the steps"),
            "momentum": (0 <= self.momentum < 1, "in [0, 1)"),
            "weight_decay": (0 <= self.weight_decay < math.inf, "at least 0 and finite"),
            "task_weight": (0 <= self.task_weight < math.inf, "at least 0 and finite"),
            "precision": (
                self.precision in {"auto", "bfloat16", "float32"},
                "'auto', 'bfloat16' or 'float32'",
            ),
        }
        for name, (is_right, range_) in faults.items():
            if not is_right:
                raise ArgumentError(
                    f"{name} of the recipe is {getattr(self, name)!r}; it must be {range_}."
                )

    def learning_rate(self, step: int) -> float:
        """Return the learning rate of `step`, counted from 0.

        Over the first `warmup * steps` steps it rises linearly to `lr`, then follows half a cosine
        that would be 0 at step `steps`.

        >>> recipe = Recipe(steps=100, lr=0.1, warmup=0.02)
        >>> [round(recipe.learning_rate(step), 4) for step in (0, 1, 2, 51, 99)]
        [0.05, 0.1, 0.1, 0.05, 0.0]
        """
        first = round(self.warmup * self.steps)
        if step < first:
            return self.lr * (step + 1) / first
        return self.lr * (1 + math.cos(math.pi * (step - first) / (self.steps - first))) / 2

    def dtype(self, device: torch.device) -> torch.dtype:
        """Return the dtype of forward and backward passes on `device`."""
        if self.precision == "auto":
            return torch.bfloat16 if has_fast_bfloat16(device) else torch.float32
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether `device` multiplies matrices in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = cpu_capabilities() if device.type == "cpu" else {}
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
