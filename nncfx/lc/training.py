"""The training shared by recovery methods: minibatches, and a loop over them."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from nncfx.errors import ArgumentError, CompressionError
from nncfx.lc.recovery import RecoveryData
from nncfx.tracing.calls.devices import on_device
from nncfx.tracing.calls.inputs import as_call

AMP: Final[Mapping[str, torch.dtype]] = MappingProxyType(
    {"bfloat16": torch.bfloat16, "float16": torch.float16}
)
"""The dtypes of mixed precision by name."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Stepping:
    """How a minibatch updates the weights.

    Attributes:
        optimizer: Steps once per minibatch.
        before_step: Called when the gradients of the loss are ready.
        after_step: Called after the weights were updated.
        amp: "bfloat16" or "float16": the dtype of the forward pass where torch considers it safe
            (`torch.autocast`); for float16 the loss is scaled. None: the dtype of the model.
    """

    optimizer: Optimizer
    before_step: Callable[[], None]
    after_step: Callable[[], None]
    amp: str | None = None


def minibatches(train: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield minibatches forever, restarting `train` whenever it ends.

    Raises:
        ArgumentError: `train` has no minibatches (any more).
    """
    while True:
        ended = True
        for batch in train:
            ended = False
            yield batch
        if ended:
            raise ArgumentError(
                "train yields no minibatches, or none the second time (a generator can be read "
                "only once). Give a DataLoader or a list of (inputs, targets)."
            )


def clip(model: nn.Module, clip_norm: float | None) -> None:
    """Scale the gradients of `model` to a joint norm of at most `clip_norm`; None: no clipping."""
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)


def scale_rate(optimizer: Optimizer, factor: float) -> None:
    """Multiply the learning rate of every parameter group by `factor`."""
    for group in optimizer.param_groups:
        group["lr"] *= factor


def train_epoch(
    model: nn.Module, batches: Iterable[tuple[Any, Any]], data: RecoveryData, stepping: Stepping
) -> float:
    """Train `model` on `batches`, in train mode, and return the mean loss.

    Args:
        model: What to train, in place.
        batches: A finite number of minibatches.
        data: Provides the criterion.
        stepping: How a minibatch updates the weights.

    Raises:
        ArgumentError: there are no minibatches.
        CompressionError: the loss is not finite.
    """
    model.train()
    device = next(model.parameters()).device
    optimizer = stepping.optimizer
    amp = None if stepping.amp is None else AMP[stepping.amp]
    scaler = torch.amp.GradScaler(device.type, enabled=amp is torch.float16)
    total, count = 0.0, 0
    for inputs, targets in batches:
        data.progress(f"minibatch {count + 1}")
        args, kwargs = as_call(on_device(device, inputs))
        with torch.autocast(device.type, dtype=amp, enabled=amp is not None):
            loss = data.criterion(model(*args, **kwargs), on_device(device, targets))
        value = float(loss.detach())
        if not math.isfinite(value):
            raise CompressionError(
                f"The training loss became {value} at minibatch {count} with learning rate "
                f"{optimizer.param_groups[0]['lr']:g}. Lower lr, or clip the gradients "
                "(clip_norm=1.0)."
            )
        optimizer.zero_grad()
        torch.autograd.backward(scaler.scale(loss))
        scaler.unscale_(optimizer)
        stepping.before_step()
        scaler.step(optimizer)
        scaler.update()
        stepping.after_step()
        total, count = total + value, count + 1
    if not count:
        raise ArgumentError("train yields no minibatches. Give at least one (inputs, targets).")
    return total / count


@contextlib.contextmanager
def seeded(model: nn.Module, seed: int) -> Iterator[None]:
    """Run the body with torch's global generators seeded; restore their state afterwards."""
    cuda = sorted({p.device.index for p in model.parameters() if p.device.type == "cuda"})
    with torch.random.fork_rng(devices=cuda):
        torch.manual_seed(seed)
        yield
