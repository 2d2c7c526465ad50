"""Finds the operation at which a thinned model fails or starts to differ."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import override

from nncfx.channels.masked_norms import LivingChannels
from nncfx.channels.source import Source
from nncfx.channels.trace import ChannelObserver
from nncfx.errors import TracingError
from nncfx.thinning.left_elements import LeftElements
from nncfx.thinning.removal import Removal
from nncfx.thinning.verification import default_tolerance, relative_error
from nncfx.tracing import ExampleInputs, TracedCall, trace
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.function_mode import watch_shapes


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


def operations_before_failure(thinned: nn.Module, example_inputs: ExampleInputs) -> int | None:
    """Return how many operations of `thinned` run before one fails; None if none fails."""
    counters: list[_Counter] = []

    def count() -> list[_Counter]:
        counters[:] = [_Counter()]
        return counters

    try:
        watch_shapes(thinned, example_inputs, count)
    except TracingError:
        return counters[-1].count
    return None


@dataclass(frozen=True)
class _Record:
    address: str
    value: torch.Tensor
    grid: torch.Tensor
    source: Source | None


class _Recorder(ChannelObserver):
    """Records the result of every operation, and its channels."""

    def __init__(self, *, living: bool) -> None:
        super().__init__(living=living)
        self.records: list[_Record] = []

    @override
    def on_call(self, call: TracedCall) -> None:
        """Follow channels and record the result."""
        super().on_call(call)
        if call.address:
            for tensor in tensors_in(call.result):
                grid = self.state.ids(tensor)
                source = self.state.source(tensor)
                self.records.append(_Record(call.address, tensor.clone(), grid, source))


def first_divergence(
    masked: nn.Module, removal: Removal, inputs: Sequence[ExampleInputs], tolerance: float | None
) -> str:
    """Return the address of the first operation at which the thinned model fails or differs.

    Channels that were removed are left out of the comparison.

    Args:
        masked: the model before thinning.
        removal: the model after thinning, which may fail, and what was removed.
        inputs: inputs for both models.
        tolerance: as for `verify`.
    """
    for one in inputs:
        address = _divergence(masked, removal, one, tolerance)
        if address is not None:
            return address
    return "the model's output"


def _divergence(
    masked: nn.Module, removal: Removal, example_inputs: ExampleInputs, tolerance: float | None
) -> str | None:
    living = bool(removal.dead)
    reference, subject = _Recorder(living=living), _Recorder(living=living)
    with LivingChannels(removal.dead):
        trace(masked, example_inputs, observers=[reference])
    with suppress(TracingError):  # the records end where it fails
        trace(removal.model, example_inputs, observers=[subject])
    left = LeftElements(reference.state, removal.entries)
    for number, record in enumerate(reference.records):
        if number >= len(subject.records):
            return record.address
        expected = record.value[torch.from_numpy(left.of(record.grid, record.source))]
        actual = subject.records[number].value.reshape(-1)
        limit = default_tolerance([expected]) if tolerance is None else tolerance
        if relative_error(expected, actual) > limit:
            return record.address
    return None
