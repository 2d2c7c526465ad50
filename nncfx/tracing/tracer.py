"""Run a model once and write down every operation: `trace`."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.errors import NNCFXError, TracingError
from nncfx.graph import NNCFGraph, Operation, TensorInfo
from nncfx.tracing.dataflow import Dataflow
from nncfx.tracing.inputs import ExampleInputs, as_call
from nncfx.tracing.interception import COMPOSITE, composite_apart
from nncfx.tracing.module_stack import ModuleStack, Wiring
from nncfx.tracing.no_trace import is_left_out
from nncfx.tracing.preservation import preserved, without_keeping
from nncfx.tracing.shortcut import Shortcut, ValuesNeeded
from nncfx.tracing.spelling import Kind, kind, spelling
from nncfx.tracing.tensors import Describer, tensors_in

__all__ = [
    "Observer",
    "SizeObserver",
    "Trace",
    "TracedCall",
    "trace",
    "trace_of_shapes",
    "trace_with_wiring",
]


@dataclass(frozen=True)
class TracedCall:
    """One tensor-producing call inside a forward, as torch reported it.

    Attributes:
        func: The function object.
        args: Positional arguments as given; a tensor changed in place is already changed.
        kwargs: Keyword arguments as given.
        result: What the call returned; `None` for `x[i] = y`, which changes `args[0]`.
        operation: The graph's node, or `None` if the call is none (constructors, utilities).
        parameter_names: `id` of every parameter and buffer to its (first) dotted name.
        operands: The tensors in `args` and `kwargs`, in order.
        produced: The tensors in `result`, in order.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    operation: Operation | None
    parameter_names: Mapping[int, str]
    operands: Sequence[torch.Tensor]
    produced: Sequence[torch.Tensor]


class Observer(Protocol):
    """Follows a trace: sees inputs, then every tensor-producing call in order, then outputs."""

    def on_input(self, tensor: torch.Tensor) -> None:
        """See the next input tensor of the model, before the forward."""

    def on_call(self, call: TracedCall) -> None:
        """See a call that has just returned, in-place ones included."""

    def on_output(self, tensor: torch.Tensor) -> None:
        """See the next output tensor of the model, after the forward."""


class SizeObserver(ABC):
    """An observer that also says what code gets when it asks a tensor for its shape."""

    @abstractmethod
    def on_shape(self, tensor: torch.Tensor) -> torch.Size:
        """Return the shape of a tensor, of integers that may know more than their value."""


@dataclass(frozen=True)
class Trace:
    """A graph, and how its operations sit in their modules (what `wrap` needs beside it)."""

    graph: NNCFGraph
    wiring: Wiring


def trace(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Sequence[Observer] = (),
    *,
    train: bool = False,
) -> NNCFGraph:
    """Return the graph of one forward of `model` on `example_inputs`, without gradients.

    The model is left as it was: training flags, buffers (batch statistics too) and the random
    state are put back. On the `meta` device nothing is computed and no memory taken.

    Args:
        model: Any module; a wrapped one is traced with its hooks.
        example_inputs: A tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        observers: Are told of inputs, calls and outputs, in the order given.
        train: Trace in training mode; else in evaluation mode, whatever mode the model is in.

    Raises:
        ArgumentError: `example_inputs` is none of these.
        TracingError: the model refuses the inputs (its own error is the cause), or returns
            no tensor.

    >>> trace(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), torch.zeros(1, 2)).addresses
    ['Sequential/Linear[0]/linear_0', 'Sequential/ReLU[1]/relu_0']
    """
    return trace_with_wiring(model, example_inputs, observers, train=train).graph


def trace_with_wiring(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Sequence[Observer] = (),
    *,
    train: bool = False,
) -> Trace:
    """Return the graph as `trace` does, and the wiring of its operations."""
    return _traced(model, example_inputs, observers, train=train, shortcut=None)


def trace_of_shapes(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Callable[[], Sequence[Observer]] = list,
) -> Trace:
    """Return what `trace_with_wiring` does, in a fraction of a forward's time.

    Nothing is computed that only values need, unless the model looks at values; tensors that the
    model would keep for later forwards are let go.

    Args:
        model: Any module.
        example_inputs: As for `trace`.
        observers: Makes the observers; those that it made last have seen the whole trace.
    """
    as_call(example_inputs)
    with suppress(TracingError, ValuesNeeded), without_keeping(model):
        return _traced(model, example_inputs, observers(), train=False, shortcut=Shortcut())
    # zeros may lead astray; if the inputs are at fault, the same happens again with values
    return trace_with_wiring(model, example_inputs, observers())


def _traced(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Sequence[Observer],
    *,
    train: bool,
    shortcut: Shortcut | None,
) -> Trace:
    args, kwargs = as_call(example_inputs)
    stack = ModuleStack(model)
    mode = _TracingMode(model, stack, observers, shortcut)
    with torch.no_grad(), preserved(model, train=train):
        for tensor in tensors_in((args, kwargs)):
            mode.flow.add_input(tensor)
            _each(observers, "on_input", tensor)
        with _explained(model), stack.listening(), mode:
            result = model(*args, **kwargs)
        outputs = list(tensors_in(result))
        if not outputs:
            raise TracingError(
                f"{type(model).__name__} returned a {type(result).__name__} without any tensor; "
                "a graph ends in tensors. Let forward return a tensor, or a tuple, mapping or "
                "dataclass that holds some.",
            )
        for tensor in outputs:
            mode.flow.add_output(tensor)
            _each(observers, "on_output", tensor)
    return Trace(mode.flow.graph(), stack.wiring())


def _each(observers: Sequence[Observer], method: str, value: Any) -> None:
    for observer in observers:
        getattr(observer, method)(value)


@contextmanager
def _explained(model: nn.Module) -> Iterator[None]:
    try:
        yield
    except NNCFXError:
        raise
    except Exception as error:
        raise TracingError(
            f"{type(model).__name__} refuses the example inputs: {type(error).__name__}: {error}. "
            "Pass what its forward takes: a tensor, a tuple of positional inputs, or a mapping of "
            "keyword inputs, on the model's device.",
        ) from error


_SHAPE: Any = torch.Tensor.shape  # a descriptor, of which torch reports the getter
_SIZES: Final = frozenset([_SHAPE.__get__, torch.Tensor.size])


class _TracingMode(TorchFunctionMode):
    """Turns every call that torch reports into a `TracedCall`, and operations into nodes."""

    def __init__(
        self,
        model: nn.Module,
        stack: ModuleStack,
        observers: Sequence[Observer],
        shortcut: Shortcut | None,
    ) -> None:
        super().__init__()
        self.flow = Dataflow(model)
        self._describe = Describer()
        self._shortcut = shortcut
        self._stack = stack
        self._observers = observers
        self._sizes = [one for one in observers if isinstance(one, SizeObserver)]
        self._calls: Counter[tuple[str, str]] = Counter()

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is COMPOSITE:
            with self:
                return composite_apart(*args, **kwargs)
        inputs = list(tensors_in((args, kwargs)))
        infos = self._describe(inputs)
        name = spelling(func, kwargs)
        result = self._run(func, name, args, kwargs, inputs)
        # an assignment to elements returns nothing and changes its first argument
        results = list(tensors_in(result))
        produced = [args[0]] if name == "__setitem__" else results
        if not produced:
            return result
        what = kind(name) if inputs else Kind.CONSTRUCTOR
        if what == Kind.OPERATION and is_left_out():
            what = Kind.PASSING
        operation = None
        if what == Kind.OPERATION:
            operation = self._operation(name, inputs, infos, produced)
            if name == "einsum":
                operation = replace(operation, equation=str(args[0]))
            self.flow.add_operation(operation, inputs, produced)
        elif what == Kind.PASSING:
            self.flow.pass_on(inputs[0], produced)
        self._stack.saw_call(operation, name, inputs, produced)
        if self._observers:
            names = self.flow.parameter_names
            call = TracedCall(func, args, kwargs, result, operation, names, inputs, results)
            _each(self._observers, "on_call", call)
        return result

    def _run(
        self,
        func: Callable[..., Any],
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        inputs: list[torch.Tensor],
    ) -> Any:
        if func in _SIZES:
            return self._size(*args, **kwargs)
        if self._shortcut is None:
            return func(*args, **kwargs)
        return self._shortcut.run(func, name, args, kwargs, inputs)

    def _size(self, tensor: torch.Tensor, dim: int | None = None) -> Any:
        shape = self._sizes[0].on_shape(tensor) if self._sizes else tensor.shape
        return shape if dim is None else shape[dim]

    def _operation(
        self,
        name: str,
        inputs: list[torch.Tensor],
        infos: tuple[TensorInfo, ...],
        produced: list[torch.Tensor],
    ) -> Operation:
        frame = self._stack.top
        number = self._calls[frame.scope, name]
        self._calls[frame.scope, name] += 1
        return Operation(
            address=f"{frame.scope}/{name}_{number}",
            function=name,
            call_number=number,
            index=self.flow.operation_count,
            module=frame.module,
            module_type=frame.module_type,
            inputs=infos,
            outputs=self._describe(produced),
            parameters=self.flow.parameters_of(inputs, frame.module),
        )
