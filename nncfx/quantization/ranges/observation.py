"""Watch a wrapped model while it runs: probes at its sites, and its quantizers switched off."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError, NNCFXError, error_text, machine_fault
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.ranges.quick_kernels import quick_kernels
from nncfx.tracing import ExampleInputs, Insertion, PreSite, Priority, Site, as_call, run
from nncfx.tracing.calls.preservation import preserved, without_keeping

Note = Callable[[Tensor], Tensor | None]
"""Sees a tensor; what it returns, if not `None`, is used instead."""

_LOGGER = logging.getLogger(__name__)
_ALGORITHM: Final = "observation"


@final
class _Probe(nn.Module):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    @override
    def forward(self, x: Tensor) -> Tensor:
        instead = self._note(x)
        return x if instead is None else instead


@contextmanager
def probing(model: NNCFNetwork, notes: Mapping[Site, Note]) -> Iterator[None]:
    """Show the tensors at sites to `notes` until the end of the block.

    What enters an operation is seen after all hooks there, and what leaves it before them: an
    input as the operation reads it, a result as it computed it.
    """
    last, first = Priority.QUANTIZATION + 1, Priority.DEFAULT - 1
    insertions = [
        Insertion(site, _Probe(note), last if isinstance(site, PreSite) else first, _ALGORITHM)
        for site, note in notes.items()
    ]
    with model.nncf.register(insertions):
        model.nncf.commit()
        yield


def quantizers_of(model: NNCFNetwork) -> dict[Site, Quantizer]:
    """Return the quantizers of `model` by site, in the order in which they are applied."""
    hooks = model.nncf.hooks
    return {one.site: one.hook for one in hooks if isinstance(one.hook, Quantizer)}


@contextmanager
def in_float(quantizers: Iterable[Quantizer]) -> Iterator[None]:
    """Let `quantizers` pass what they get until the end of the block."""
    changed = [one for one in quantizers if one.is_active]
    for one in changed:
        one.is_active = False
    try:
        yield
    finally:
        for one in changed:
            one.is_active = True


@contextmanager
def with_values(model: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Give parameters of `model`, by name, other values until the end of the block."""
    named = dict(model.named_parameters())
    stored = {name: named[name] for name in values}
    held = {name: one.data for name, one in stored.items()}
    for name, one in stored.items():
        one.data = values[name]
    try:
        yield
    finally:
        for name, one in stored.items():
            one.data = held[name]


def in_float_first(
    model: NNCFNetwork,
    batches: Iterable[ExampleInputs],
    float_weights: Mapping[str, Tensor] = MappingProxyType({}),
) -> Iterator[ExampleInputs]:
    """Yield each batch twice: while the quantizers of `model` are switched off, and then on.

    The first time, parameters are what `float_weights` says by name, as they were before they were
    rounded in place.
    """
    quantizers = quantizers_of(model).values()
    for batch in batches:
        with in_float(quantizers), with_values(model, float_weights):
            yield batch
        yield batch


def run_batches(model: nn.Module, batches: Iterable[ExampleInputs]) -> int:
    """Run `model` on each of `batches`, in evaluation mode, without gradients; return how many.

    The model is left as it was.

    Raises:
        ArgumentError: there is none, or the model fails on one.
    """
    count = 0
    # what a float forward keeps, such as a grid of positions, is not what a quantized one makes
    written = model.nncf.folded_weights if isinstance(model, NNCFNetwork) else ()
    with torch.no_grad(), quick_kernels(model), without_keeping(model, written), preserved(model):
        for batch in batches:
            _run_one(model, batch, count)
            count += 1
    if not count:
        raise no_batches()
    return count


def _run_one(model: nn.Module, batch: ExampleInputs, index: int) -> None:
    try:
        run(model, batch)
    except NNCFXError:
        raise
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise failed_batch(model, batch, index, error) from error


def no_batches() -> ArgumentError:
    """Return the error where there is nothing to calibrate with."""
    return ArgumentError(
        "There are no batches to calibrate with, or none has examples. Pass an iterable with at "
        "least one; a generator that was read before is empty."
    )


def failed_batch(
    model: nn.Module, batch: ExampleInputs, index: int, error: Exception
) -> ArgumentError:
    """Return what to raise where a model fails on the batch of this number."""
    args, kwargs = as_call(batch)
    given = [_shape_text(one) for one in args]
    given += [f"{name}={_shape_text(one)}" for name, one in kwargs.items()]
    return ArgumentError(
        f"{type(model).__name__} fails on batch {index} (counted from 0), which is "
        f"{', '.join(given)}: {error_text(error)} Every batch must be as the "
        "forward takes it; look at what your loader yields there."
    )


def _shape_text(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    return type(value).__name__


def warn_if_none(
    found: Sized, what: str, needs: str, *, was_asked: bool = True, mend: str = "Leave it out."
) -> None:
    """Log that `what` changes nothing where nothing was found of what it `needs`, and the mend.

    What a preset does of itself (not `was_asked`) is not logged.
    """
    if not found and was_asked:
        _LOGGER.warning("%s changes nothing: the model has no %s. %s", what, needs, mend)
