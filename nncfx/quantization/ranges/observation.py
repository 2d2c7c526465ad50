"""Observe a wrapped model while it runs, with probes at its sites and quantizers switched off."""

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
"""Receives a tensor; a result other than `None` replaces it."""

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
    """Pass the tensors at sites to `notes` inside the block.

    Inputs are observed after all other hooks, as the operation reads them, and results before all
    other hooks, as the operation computed them.
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
    """Return the quantizers of `model` by site, in order of application."""
    hooks = model.nncf.hooks
    return {one.site: one.hook for one in hooks if isinstance(one.hook, Quantizer)}


@contextmanager
def in_float(quantizers: Iterable[Quantizer]) -> Iterator[None]:
    """Switch `quantizers` off inside the block."""
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
    """Replace the values of parameters of `model`, by name, inside the block."""
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
    """Yield each batch twice, first with the quantizers of `model` switched off, then on.

    The first time, parameters named in `float_weights` have those values, which they had before
    they were rounded in place.
    """
    quantizers = quantizers_of(model).values()
    for batch in batches:
        with in_float(quantizers), with_values(model, float_weights):
            yield batch
        yield batch


def run_batches(model: nn.Module, batches: Iterable[ExampleInputs]) -> int:
    """Run `model` on `batches` in evaluation mode, without gradients; return their number.

    The model is not changed.

    Raises:
        ArgumentError: there are no batches, or the model fails on one.
    """
    count = 0
    # a float forward must not keep values, such as a grid of positions, for a quantized one
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
    """Return the error to raise if there are no batches."""
    return ArgumentError(
        "There are no batches to calibrate with, or none has examples. Pass an iterable with at "
        "least one; a generator that was read before is empty."
    )


def failed_batch(
    model: nn.Module, batch: ExampleInputs, index: int, error: Exception
) -> ArgumentError:
    """Return the error to raise if a model fails on the batch with this index."""
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
    found: Sized, what: str, needs: str, *, was_asked: bool = True, fix: str = "Leave it out."
) -> None:
    """Warn that `what` has no effect if `found` is empty: it `needs` something the model lacks.

    Nothing is logged if a preset chose it (not `was_asked`). `fix` says what to do.
    """
    if not found and was_asked:
        _LOGGER.warning("%s changes nothing: the model has no %s. %s", what, needs, fix)
