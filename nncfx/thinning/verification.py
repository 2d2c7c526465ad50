"""Check that a thinned model computes what the masked one does."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from typing_extensions import override

from nncfx.channels.masked_norms import LivingChannels
from nncfx.channels.source import Source
from nncfx.channels.trace import CALLS_OF_A_PATH, ChannelObserver
from nncfx.errors import ThinningError, TracingError, error_text, machine_fault
from nncfx.graph.operations import Operation
from nncfx.graph.union_find import Ids
from nncfx.thinning.proof_inputs import EmbeddingRows, random_inputs
from nncfx.thinning.removal import Removal
from nncfx.tracing import ExampleInputs, TracedCall, run, trace
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.function_mode import watch_shapes
from nncfx.tracing.record.tracer import trace_of_shapes

__all__ = [
    "ConstantOutputs",
    "NothingProven",
    "check_training",
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


class NothingProven(ThinningError):  # noqa: N818 (what is so, not that it is an error)
    """The outputs that were compared say nothing."""


class ConstantOutputs(NothingProven):
    """They are one number, such as zero, for all inputs.

    Attributes:
        error: the largest relative error among them, which is accepted.
    """

    def __init__(self, what: str, error: float) -> None:
        super().__init__(_VACUOUS.format(what=what))
        self.error = error


_NO_NUMBERS: Final = (
    "Every output of the model on the example inputs is NaN, so that comparing the thinned model "
    "with it would prove nothing. Its weights may have diverged, or its code may not compute in "
    "their dtype; thin a model, and pass inputs, that give numbers."
)
_VACUOUS: Final = (
    "Every output of the model is {what}, on the example inputs and on random ones of their "
    "shapes, so that comparing the thinned model with it would prove nothing. Pass inputs on "
    "which its outputs vary (further_inputs), or prune less: some layer may have nothing left."
)


_SPREADS: Final = (1.0, 30.0)
"""Standard deviations of the numbers to try where all outputs are one number so far."""


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
    *,
    further_inputs: Sequence[ExampleInputs] = (),
) -> float:
    """Return the largest relative error over all outputs, in evaluation mode.

    It is measured on the example inputs, on the further ones, and on random ones of the shapes and
    types of each (`random_inputs`) if the masked model takes them.

    Args:
        masked: the model before.
        thinned: the model after.
        example_inputs: what both are run on.
        tolerance: the largest relative error accepted; None for that of `default_tolerance`.
        dead: the channels that norms of the masked model leave out, as `Removal` has them.
        further_inputs: more of them.

    Raises:
        ThinningError: the thinned model fails, or its error exceeds the tolerance.
        NothingProven: the outputs are all NaN.
        ConstantOutputs: they are one number, such as zero, whatever is given.
    """
    worst, seen = 0.0, []
    # outputs that are all one number so far may be asleep, as behind a ReLU
    for spread in (None, *_SPREADS):
        for number, inputs in enumerate((example_inputs, *further_inputs)):
            first = number * CALLS_OF_A_PATH
            own = {call - first: one for call, one in dead.items() if call - first >= 0}
            for probe, expected in _probes(masked, inputs, own, spread):
                worst = max(worst, _error(expected, thinned, probe, tolerance))
                seen.append(expected)
        if not _constant(seen):
            return worst
    raise ConstantOutputs(_constant(seen), worst)


def _probes(
    masked: nn.Module, inputs: ExampleInputs, dead: Dead, spread: float | None
) -> Iterator[tuple[ExampleInputs, list[torch.Tensor]]]:
    """Yield inputs, and random ones like them, each with what the masked model makes of it."""

    def expected(given: ExampleInputs) -> list[torch.Tensor]:
        with LivingChannels(dead) if dead else nullcontext():
            return _outputs(masked, given)

    with EmbeddingRows(inputs) as tables:
        found = expected(inputs)
    yield inputs, found
    for drawn in random_inputs(inputs, tables.rows, spread=spread):
        try:
            found = expected(drawn)
        except Exception as error:  # not every model takes any values
            if machine_fault(error) is not None:
                raise
            continue
        if not _all_nan(found):
            yield drawn, found
            return


def _error(
    expected: list[torch.Tensor],
    thinned: nn.Module,
    inputs: ExampleInputs,
    tolerance: float | None,
) -> float:
    """Return the largest relative error of the thinned model's outputs.

    Raises:
        ThinningError: it fails, or its error exceeds the tolerance.
    """
    try:
        actual = _outputs(thinned, inputs)
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ThinningError(f"The thinned model fails: {error_text(error)}.") from error
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


def _constant(seen: Sequence[list[torch.Tensor]]) -> str:
    """Return which one number all outputs on all inputs are; "" if there are others.

    Raises:
        NothingProven: all are NaN.
    """
    filled = [one for outputs in seen for one in outputs if one.numel()]
    if _all_nan(filled):
        raise NothingProven(_NO_NUMBERS)
    if not filled or sum(one.numel() for one in filled) == 1:
        return ""
    first = filled[0].flatten()[0]
    if any(bool((one != first).any()) for one in filled):
        return ""
    return f"{first.item() + 0:g} everywhere"  # -0.0 is 0


def _all_nan(outputs: Sequence[torch.Tensor]) -> bool:
    filled = [one for one in outputs if one.numel()]
    return bool(filled) and all(bool(one.isnan().all()) for one in filled)


def _outputs(model: nn.Module, example_inputs: ExampleInputs) -> list[torch.Tensor]:
    with torch.no_grad(), preserved(model):
        return [output.clone() for output in tensors_in(run(model, example_inputs))]


def check_training(masked: nn.Module, thinned: nn.Module, inputs: Sequence[ExampleInputs]) -> None:
    """Check that the thinned model runs in training mode where the masked one does; by shapes.

    Raises:
        ThinningError: it fails.
    """
    for one in inputs:
        try:
            watch_shapes(masked, one, list, train=True)
        except TracingError:  # such as norms that refuse a batch of one
            continue
        try:
            watch_shapes(thinned, one, list, train=True)
        except TracingError as error:
            raise ThinningError(f"The thinned model fails in training mode: {error}") from error


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
    inputs: Sequence[ExampleInputs],
    tolerance: float | None,
) -> str:
    """Return the address of the first operation at which the thinned model fails or differs.

    Channels that were removed are left out of the comparison.

    Args:
        masked: the model before.
        removal: the model after, which may fail, and what went.
        inputs: what both are run on.
        tolerance: as for `verify`.
    """
    for one in inputs:
        address = _divergence(masked, removal, one, tolerance)
        if address is not None:
            return address
    return "the model's output"


def _divergence(
    masked: nn.Module,
    removal: Removal,
    example_inputs: ExampleInputs,
    tolerance: float | None,
) -> str | None:
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
    return None


def _left(source: Source, entries: Mapping[tuple[str, int], Ids]) -> npt.NDArray[np.bool_]:
    """Return which elements of a tensor, made of a parameter's, a thinned model has, too."""
    left = np.ones(source.shape, dtype=np.bool_)
    for axis in range(left.ndim):
        gone = entries.get((source.parameter, axis))
        if gone is not None:
            left[(slice(None),) * axis + (gone,)] = False
    found: npt.NDArray[np.bool_] = left.reshape(-1)[source.elements.numpy()]
    return found
