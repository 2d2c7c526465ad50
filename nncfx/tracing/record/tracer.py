"""Run a model once and record every operation."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph import NNCFGraph, Operation, TensorInfo
from nncfx.storage.models.module_walk import named_modules
from nncfx.tracing.calls.call_numbers import CallNumbers
from nncfx.tracing.calls.function_names import Kind
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.module_check import require_shapes
from nncfx.tracing.calls.module_stack import Frame, ModuleStack, Wiring
from nncfx.tracing.calls.tensors import Describer
from nncfx.tracing.record.attribute_reads import AttributeReads
from nncfx.tracing.record.dataflow import Dataflow
from nncfx.tracing.record.dropped_results import is_dropped
from nncfx.tracing.record.function_mode import (
    CallMode,
    Modules,
    Observer,
    Spot,
    by_shapes,
    forward,
)
from nncfx.tracing.record.shape_only_execution import Shortcut


@dataclass(frozen=True)
class Trace:
    """A graph, and where its operations are in their modules, which `wrap` needs too.

    Attributes:
        graph: The graph.
        wiring: Where its operations are.
        fills_caches: Whether functions kept results, so that later forwards make fewer calls.
    """

    graph: NNCFGraph
    wiring: Wiring
    fills_caches: bool = field(default=False, compare=False)


def trace(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Sequence[Observer] = (),
    *,
    train: bool = False,
) -> NNCFGraph:
    """Return the graph of one forward of `model` on `example_inputs`, without gradients.

    The model is unchanged: training flags, buffers (including batch statistics) and the random
    state are restored. On the `meta` device nothing is computed and no memory is allocated.

    Args:
        model: Any module; a wrapped module is traced with its hooks.
        example_inputs: A tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        observers: Called for inputs, calls and outputs, in the given order.
        train: Trace in training mode; else in evaluation mode, whatever mode the model is in.

    Raises:
        ArgumentError: `example_inputs` has no accepted form.
        TracingError: the model rejects the inputs (its own error is the cause), or returns
            no tensor.

    >>> trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2)).addresses
    ['Sequential/Linear[0]/linear_0', 'Sequential/ReLU[1]/relu_0']
    """
    require_shapes(model, "trace")
    return trace_with_wiring(model, example_inputs, observers, train=train).graph


def trace_of_shapes(model: nn.Module, example_inputs: ExampleInputs) -> Trace:
    """Return the same as `trace_with_wiring` in a fraction of a forward's time, by `by_shapes`."""
    return traces_of_shapes(model, [example_inputs])[0]


def traces_of_shapes(model: nn.Module, several: Iterable[ExampleInputs]) -> list[Trace]:
    """Return the traces of several inputs; a call in two traces has the same address in both."""
    known = CallNumbers()
    traces = []
    for inputs in several:
        made, known = by_shapes(model, inputs, partial(_numbered, model, inputs, known))
        traces.append(made)
    return traces


def _numbered(
    model: nn.Module,
    inputs: ExampleInputs,
    known: CallNumbers,
    shortcut: Shortcut | None,
    modules: Modules,
) -> tuple[Trace, CallNumbers]:
    numbers = CallNumbers(known)
    stack = ModuleStack(model, modules)
    made = _traced(model, inputs, _GraphMode(stack, shortcut=shortcut, numbers=numbers))
    if made.fills_caches:  # a second trace sees what all later forwards do
        numbers = CallNumbers(known)
        stack = ModuleStack(model, modules)
        made = _traced(model, inputs, _GraphMode(stack, shortcut=shortcut, numbers=numbers))
    return made, numbers


def trace_with_wiring(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Sequence[Observer] = (),
    *,
    train: bool = False,
) -> Trace:
    """Return the graph of `trace`, and the wiring of its operations."""
    mode = _GraphMode(ModuleStack(model, named_modules(model)), observers)
    return _traced(model, example_inputs, mode, train=train)


def _traced(
    model: nn.Module, example_inputs: ExampleInputs, mode: "_GraphMode", *, train: bool = False
) -> Trace:
    reads = AttributeReads(mode.stack.named_modules)
    with reads.noted():
        forward(model, example_inputs, mode, train=train)
    graph = mode.flow.graph()
    wiring = replace(
        mode.stack.wiring(), folded=frozenset(mode.flow.folded), bypassed=reads.bypassed(graph)
    )
    return Trace(graph, wiring, mode.kept.is_found)


class _GraphMode(CallMode):
    """Also turns operations into nodes of a graph."""

    _builds_graph = True

    def __init__(
        self,
        stack: ModuleStack,
        observers: Sequence[Observer] = (),
        shortcut: Shortcut | None = None,
        numbers: CallNumbers | None = None,
    ) -> None:
        self.flow = Dataflow(stack.named_modules)
        super().__init__(stack, self.flow.parameter_names, observers, shortcut, numbers)
        self._described = Describer()

    @override
    def take_input(self, tensor: torch.Tensor) -> None:
        self.flow.add_input(tensor)
        super().take_input(tensor)

    @override
    def take_output(self, tensor: torch.Tensor) -> None:
        self.flow.add_output(tensor)
        super().take_output(tensor)

    @override
    def _data_set(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        self.flow.set_data(tensor, data)

    @override
    def _drawn(
        self,
        frame: Frame,
        spot: Spot,
        inputs: Sequence[torch.Tensor],
        infos: tuple[TensorInfo, ...],
        produced: Sequence[torch.Tensor],
    ) -> Operation | None:
        operation = None
        if spot.what == Kind.OPERATION:
            origins = self.flow.origins(inputs)
            is_given = id(produced[0]) in map(id, inputs)  # as in each in-place operation
            operation = Operation(
                address=spot.address,
                function=spot.function,
                call_number=spot.number,
                index=self.flow.operation_count,
                module=frame.module,
                module_type=frame.module_class.__name__,
                inputs=infos,
                outputs=self._described(produced),
                parameters=self.flow.parameters_of(origins, frame.module),
                equation=spot.equation,
                fill=spot.fill,
                is_statement=is_given and is_dropped(sys._getframe(2)),  # noqa: SLF001 (as the mode's own)
            )
            self.flow.add_operation(operation, origins, inputs, produced)
        elif spot.what == Kind.PASSING:
            self.flow.pass_on(inputs[0], produced)
        self.stack.saw_call(frame, operation, spot.function, spot.site, inputs, produced)
        return operation
