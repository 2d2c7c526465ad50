"""Adapt the statistics of batch norms, whose inputs are shifted by compression."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.network import NNCFNetwork, inputs_in
from nncfx.schemes.masks.exact_masks import check_at_least
from nncfx.schemes.wide_floats import NARROW, wide
from nncfx.storage.models.sharded_models import several_processes
from nncfx.tracing import run

Forward = Callable[[nn.Module, Any], object]


def adapt_batch_norms(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    samples: int = 2000,
    forward: Forward | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """Update the running statistics of batch norms from data; return the number of examples.

    Only batch norms with running statistics are in training mode, each with its own momentum;
    other modules stay in evaluation mode, no parameter changes, and the modes are restored. A
    model without batch norms is not run.

    Args:
        model: The compressed model.
        batches: Any iterable, such as a loader. It is read until `samples` examples have been
            seen, or to its end.
        samples: Number of examples, rounded up to whole batches.
        forward: Calls the model with a batch; by default the model is called with the inputs that
            `nncfx.network.inputs_in` finds in a batch.
        progress: Called after each batch with the number of examples so far and `samples`.

    Raises:
        ArgumentError: `samples` is negative, or a batch has an unknown form and there is no
            `forward`.

    Source: NNCF 2.19, "Batch-norm adaptation".
    """
    check_at_least("samples", samples, 0)
    norms = [one for one in _own_modules(model) if isinstance(one, _BatchNorm)]
    norms = [one for one in norms if one.track_running_stats]
    if not norms:
        return 0
    call = run_batch if forward is None else forward
    modes = {module: module.training for module in model.modules()}
    seen = 0
    try:
        model.eval()
        for norm in norms:
            norm.train()
        with torch.no_grad(), _in_float32(norms):
            for batch in batches if samples else ():
                call(model, batch)
                seen += examples_in(batch)
                if progress is not None:
                    progress(min(seen, samples), samples)
                if seen >= samples:
                    break
            if samples:
                _average_over_processes(norms)
    finally:
        for module, mode in modes.items():
            module.training = mode
    return seen


def _average_over_processes(norms: Iterable[_BatchNorm]) -> None:
    """Set the statistics of norms to their means over all processes."""
    if not several_processes():
        return
    for norm in norms:
        for statistic in (norm.running_mean, norm.running_var):
            if statistic is not None:
                torch.distributed.all_reduce(statistic)
                statistic.div_(torch.distributed.get_world_size())


@contextlib.contextmanager
def _in_float32(norms: Iterable[_BatchNorm]) -> Iterator[None]:
    """Let norms of 16-bit floats average in float32, since 16 bits would round off small steps."""
    with contextlib.ExitStack() as ends:
        for norm in norms:
            if norm.running_mean is None or norm.running_mean.dtype not in NARROW:
                continue
            dtype = norm.running_mean.dtype
            ends.callback(norm.to, dtype)
            norm.float()
            ends.enter_context(
                norm.register_forward_pre_hook(lambda _, args: tuple(map(wide, args)))
            )
            ends.enter_context(
                norm.register_forward_hook(lambda _, __, out, dtype=dtype: out.to(dtype))
            )
        yield


def _own_modules(model: nn.Module) -> list[nn.Module]:
    """Return the modules of the model itself, without those of hooks, such as a teacher's."""
    hooks = model.nncf.hooks if isinstance(model, NNCFNetwork) else ()
    of_hooks = {id(one) for insertion in hooks for one in insertion.hook.modules()}
    return [one for one in model.modules() if id(one) not in of_hooks]


def run_batch(model: nn.Module, batch: object) -> object:
    """Call `model` with the inputs in a batch, as `nncfx.network.inputs_in` finds them.

    Raises:
        ArgumentError: `batch` has an unknown form.
    """
    return run(model, inputs_in(batch, model))


def examples_in(batch: object) -> int:
    """Return the number of examples in `batch`: axis 0 of its first tensor, else 1."""
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else 1
    parts: Iterable[object] = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, tuple | list):
        parts = batch
    first = next((part for part in parts if isinstance(part, Tensor) and part.ndim), None)
    return 1 if first is None else first.shape[0]
