"""Check that a thinned model computes what the masked one does."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ThinningError, TracingError, machine_fault
from nncfx.graph.operations import Operation
from nncfx.graph.union_find import Ids
from nncfx.thinning.removal import Removal
from nncfx.tracing import ExampleInputs, TracedCall, run, trace
from nncfx.tracing.channel_source import Source
from nncfx.tracing.channel_trace import ChannelObserver
from nncfx.tracing.living import LivingChannels
from nncfx.tracing.preservation import preserved
from nncfx.tracing.tensors import tensors_in
from nncfx.tracing.tracer import trace_of_shapes
from nncfx.tracing.watching import watch_shapes

__all__ = [
    "default_tolerance",
    "failing_operation",
    "first_divergence",
    "relative_error",
    "verify",
]

Dead: TypeAlias = Mapping[int, tuple[int, Ids]]

# Sums over fewer terms are rounded differently. The bars of the project, met with room to spare
# by sums of some thousands of terms; half precision keeps 11 or 8 bits and so gets 2^-7 and 2^-4.
_TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 2.0**-7,
    torch.bfloat16: 2.0**-4,
}


def default_tolerance(outputs: Sequence[torch.Tensor]) -> float:
    """Return the largest relative error that rounding explains, by the coarsest dtype."""
    return max((_TOLERANCES.get(output.dtype, 1e-12) for output in outputs), default=0.0)


def relative_error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return max |actual - expected| / max |expected|; infinite where shapes or NaN differ.

    Where both are NaN, or the same infinity, they agree. Two empty tensors agree.
    """
    if expected.shape != actual.shape:
        return float("inf")
    wide = torch.complex128 if expected.is_complex() else torch.float64
    expected, actual = expected.detach().to(wide), actual.detach().to(wide)
    same = (expected == actual) | (expected.isnan() & actual.isnan())
    difference = (actual - expected).abs().masked_fill(same, 0.0)
    largest = difference.max().item() if difference.numel() else 0.0
    if largest == 0:
        return 0.0
    finite = expected.abs()[expected.isfinite()]
    scale = finite.max().item() if finite.numel() else 0.0
    error = largest / scale if scale else float("inf")
    return float("inf") if np.isnan(error) else error


def verify(
    masked: nn.Module,
    thinned: nn.Module,
    example_inputs: ExampleInputs,
    tolerance: float | None,
    dead: Dead = MappingProxyType({}),
) -> float:
    """Return the largest relative error over all outputs, in evaluation mode.

    NaN: every entry of every output of the masked model is NaN, so that nothing is compared.
    `dead` are the channels that norms of the masked model leave out, as `Removal` has them.

    Raises:
        ThinningError: the thinned model fails, or its error exceeds the tolerance.
    """
    with LivingChannels(dead) if dead else nullcontext():
        expected = _outputs(masked, example_inputs)
    try:
        actual = _outputs(thinned, example_inputs)
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ThinningError(
            f"The thinned model fails: {type(error).__name__}: {error}."
        ) from error
    filled = [one for one in expected if one.numel()]
    if filled and all(one.isnan().all() for one in filled):
        return float("nan")
    if len(expected) != len(actual):
        raise ThinningError(f"The thinned model has {len(actual)} outputs, not {len(expected)}.")
    pairs = zip(expected, actual, strict=True)
    worst = max((relative_error(one, other) for one, other in pairs), default=0.0)
    limit = default_tolerance(expected) if tolerance is None else tolerance
    if worst > limit:
        raise ThinningError(
            f"The thinned model differs from the masked one by {worst:.1e}, relative to the "
            f"largest output; {limit:.1e} is the tolerance.",
        )
    return worst


def _outputs(model: nn.Module, example_inputs: ExampleInputs) -> list[torch.Tensor]:
    with torch.no_grad(), preserved(model):
        return [output.clone() for output in tensors_in(run(model, example_inputs))]


class _Counter:
    """Counts the operations of a trace that return."""

    def __init__(self) -> None:
        self.count = 0

    def on_input(self, tensor: torch.Tensor) -> None:
        """Ignore an input."""

    def on_call(self, call: TracedCall) -> None:
        """Count an operation."""
        self.count += bool(call.address)

    def on_output(self, tensor: torch.Tensor) -> None:
        """Ignore an output."""


def failing_operation(
    model: nn.Module,
    thinned: nn.Module,
    example_inputs: ExampleInputs,
) -> Operation | None:
    """Return the first operation of `model` that fails in `thinned`; None if it runs.

    Where the outputs have other shapes, it is the last one.
    """
    counters: list[_Counter] = []

    def count() -> list[_Counter]:
        counters[:] = [_Counter()]
        return counters

    try:
        watch_shapes(thinned, example_inputs, count)
    except TracingError:
        operations = trace_of_shapes(model, example_inputs).graph.operations
        return operations[min(counters[-1].count, len(operations) - 1)]
    return None


@dataclass(frozen=True)
class _Record:
    address: str
    value: torch.Tensor
    grid: torch.Tensor
    source: Source | None


class _Recorder(ChannelObserver):
    """Keeps the result of every operation, and its channels."""

    def __init__(self, *, living: bool) -> None:
        super().__init__(living=living)
        self.records: list[_Record] = []

    @override
    def on_call(self, call: TracedCall) -> None:
        """Follow channels and keep the result."""
        super().on_call(call)
        if call.address:
            for tensor in tensors_in(call.result):
                grid = self.state.ids(tensor)
                source = self.state.source(tensor)
                self.records.append(_Record(call.address, tensor.clone(), grid, source))


def first_divergence(
    masked: nn.Module,
    removal: Removal,
    example_inputs: ExampleInputs,
    tolerance: float | None,
) -> str:
    """Return the address of the first operation at which the thinned model fails or differs.

    Channels that were removed are left out of the comparison.

    Args:
        masked: the model before.
        removal: the model after, which may fail, and what went.
        example_inputs: what both are run on.
        tolerance: as for `verify`.
    """
    living = bool(removal.dead)
    reference, subject = _Recorder(living=living), _Recorder(living=living)
    with LivingChannels(removal.dead):
        trace(masked, example_inputs, observers=[reference])
    with suppress(TracingError):  # the records end where it fails
        trace(removal.model, example_inputs, observers=[subject])
    reference.state.settle()
    ledger = reference.state.ledger
    gone = [
        ledger.carried(*key, 1 + entries.max(initial=0))[entries]
        for key, entries in removal.entries.items()
    ]
    dead = ledger.find(np.unique(np.concatenate(gone))) if gone else np.empty(0, dtype=np.int64)
    for number, record in enumerate(reference.records):
        if number >= len(subject.records):
            return record.address
        alive = np.asarray(~np.isin(ledger.find(record.grid.numpy()), dead))
        if record.source is not None:
            alive = _left(record.source, removal.entries)
        expected = record.value[torch.from_numpy(alive)]
        actual = subject.records[number].value.reshape(-1)
        limit = default_tolerance([expected]) if tolerance is None else tolerance
        if relative_error(expected, actual) > limit:
            return record.address
    return "the model's output"


def _left(source: Source, entries: Mapping[tuple[str, int], Ids]) -> npt.NDArray[np.bool_]:
    """Return which elements of a tensor, made of a parameter's, a thinned model has, too."""
    left = np.ones(source.shape, dtype=np.bool_)
    for axis in range(left.ndim):
        gone = entries.get((source.parameter, axis))
        if gone is not None:
            left[(slice(None),) * axis + (gone,)] = False
    found: npt.NDArray[np.bool_] = left.reshape(-1)[source.elements.numpy()]
    return found
