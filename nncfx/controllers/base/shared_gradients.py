"""Average what hooks learn over the processes that share a sharded model."""

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

    Only where the model is sharded: FSDP2 shards what children of a module hold, and hooks are
    none, while DistributedDataParallel takes them like all other parameters. Nothing happens with
    one process, and calling it again changes nothing.
    """
    if not (several_processes() and isinstance(model, NNCFNetwork)):
        return
    learned = [one for insertion in model.nncf.hooks for one in insertion.hook.parameters()]
    new = [one for one in dict.fromkeys(learned) if not hasattr(one, _AVERAGED)]
    average = _Average(model, new)
    for parameter in new:
        setattr(parameter, _AVERAGED, True)
        is_learned = parameter.requires_grad
        hooked: Any = parameter.requires_grad_()  # torch refuses others, which may thaw later
        hooked.register_post_accumulate_grad_hook(average)
        parameter.requires_grad_(is_learned)


def warn_unused_scores(model: nn.Module, algorithm: str) -> None:
    """Warn that scores that take no gradient any more stop DistributedDataParallel.

    Nothing happens with one process, or where the model is sharded: `average_gradients` does not
    wait for them.
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
    """Averages the gradients once, at the end of a backward pass that has changed any."""

    def __init__(self, model: nn.Module, parameters: list[nn.Parameter]) -> None:
        self._model, self._parameters = model, parameters
        self._is_queued = False

    def __call__(self, _: Tensor) -> None:
        """Ask for the average when the backward pass ends."""
        if not self._is_queued and has_shards(self._model):
            self._is_queued = True
            engine: Any = torch.autograd.Variable._execution_engine  # noqa: SLF001 (as DDP does)
            engine.queue_callback(self._average)

    @torch.no_grad()
    def _average(self) -> None:
        self._is_queued = False
        # every process averages the same tensors, whichever its own graph has reached
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
