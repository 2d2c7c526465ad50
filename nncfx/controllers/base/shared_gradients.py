"""Average the gradients of hooks over the processes of a sharded model."""

import warnings
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from nncfx.controllers.base.loop_watch import TrainingLoopWarning
from nncfx.network import NNCFNetwork
from nncfx.storage.models.sharded_models import has_shards, several_processes

_AVERAGED: Final = "_nncf_averaged"


def average_gradients(model: nn.Module) -> None:
    """Let each backward pass average the gradients of the hooks' parameters over all processes.

    This applies only to sharded models: FSDP2 shards parameters of children, and hooks are not
    children, while DistributedDataParallel handles them like all parameters. With one process
    nothing happens, and repeated calls have no effect.
    """
    if not (several_processes() and isinstance(model, NNCFNetwork)):
        return
    learned = [one for insertion in model.nncf.hooks for one in insertion.hook.parameters()]
    new = [one for one in dict.fromkeys(learned) if not hasattr(one, _AVERAGED)]
    average = _Average(model, new)
    for parameter in new:
        setattr(parameter, _AVERAGED, True)
        is_learned = parameter.requires_grad
        hooked: Any = parameter.requires_grad_()  # torch requires it; may be trained later
        hooked.register_post_accumulate_grad_hook(average)
        parameter.requires_grad_(is_learned)


def warn_unused_scores(model: nn.Module, algorithm: str) -> None:
    """Warn that scores which no longer get gradients block DistributedDataParallel.

    Does nothing with one process, or if the model is sharded, because `average_gradients` does
    not wait for them.
    """
    if several_processes() and not has_shards(model):
        warnings.warn(
            f"The scores of {algorithm} are frozen from now on and get no gradient, but "
            "DistributedDataParallel waits for one. Make it with find_unused_parameters=True, "
            "or wrap the model again now.",
            TrainingLoopWarning,
            stacklevel=2,
        )


@final
class _Average:
    """Averages the gradients once, at the end of a backward pass that changed any of them."""

    def __init__(self, model: nn.Module, parameters: list[nn.Parameter]) -> None:
        self._model, self._parameters = model, parameters
        self._is_queued = False

    def __call__(self, _: Tensor) -> None:
        """Queue the averaging for the end of the backward pass."""
        if not self._is_queued and has_shards(self._model):
            self._is_queued = True
            engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 (as DDP does)
            engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        self._is_queued = False
        # every process must average the same tensors, even those its own graph did not reach
        grads = [
            torch.zeros_like(one) if one.grad is None else one.grad
            for one in self._parameters
            if one.requires_grad
        ]
        flat = torch.cat([one.flatten().float() for one in grads])
        torch.distributed.all_reduce(flat)
        flat /= torch.distributed.get_world_size()
        parts = torch.split(flat, [one.numel() for one in grads])
        for grad, part in zip(grads, parts, strict=True):
            grad.copy_(part.view_as(grad))
