"""Observe the calls of one forward with a `TorchFunctionMode`."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from nncfx.errors import NNCFXError, TracingError, error_text, machine_fault, users_line
from nncfx.graph import Operation, TensorInfo
from nncfx.storage.models.module_walk import first_names, named_modules
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.call_numbers import CallNumbers, Site, call_site
from nncfx.tracing.calls.composite_functions import COMPOSITE, composite_apart
from nncfx.tracing.calls.function_names import Kind, kind, spelling
from nncfx.tracing.calls.inputs import INPUT_FORMS, ExampleInputs, as_call, own_tensors
from nncfx.tracing.calls.module_stack import Frame, ModuleStack
from nncfx.tracing.calls.no_trace import is_left_out
from nncfx.tracing.calls.preservation import unchanged, without_collections
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.kept_results import KeptResults
from nncfx.tracing.record.meta_weights import with_values, zeros_for_meta
from nncfx.tracing.record.parameter_writes import ParameterWrites
from nncfx.tracing.record.shape_only_execution import Invocation, Shortcut, ValuesNeeded

Modules: TypeAlias = Sequence[tuple[str, nn.Module]]
"""The modules of a model, under every name."""

C = TypeVar("C")
R = TypeVar("R")


class TracedCall(NamedTuple):
    """One tensor-producing call inside a forward, as torch reported it.

    Attributes:
        func: The function object.
        args: Positional arguments as given; a tensor changed in place is already changed.
        kwargs: Keyword arguments as given.
        result: The result of the call; `None` for `x[i] = y`, which changes `args[0]`.
        address: Address of the operation; "" if the call is not an operation (constructors,
            utilities).
        module: Dotted name of the innermost registered module that makes the call.
        module_class: Class of that module.
        operation: The graph's node; `None` if the call is not an operation, or no graph is built.
        parameter_names: The first dotted name of every parameter and buffer, by `id`.
        operands: The tensors in `args` and `kwargs`, in order.
        produced: The tensors in `result`, in order.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any
    address: str
    module: str
    module_class: type[nn.Module]
    operation: Operation | None
    parameter_names: Mapping[int, str]
    operands: Sequence[torch.Tensor]
    produced: Sequence[torch.Tensor]


class Spot(NamedTuple):
    """A call as seen by the graph: its `Kind`, function, site, number in its scope and address."""

    what: str
    function: str
    site: Site
    number: int
    address: str
    equation: str = ""
    fill: float = 0.0


class Observer(Protocol):
    """Follows a trace: gets inputs, then all tensor-producing calls in order, then outputs."""

    def on_input(self, tensor: torch.Tensor) -> None:
        """Handle the next input tensor of the model, before the forward."""

    def on_call(self, call: TracedCall) -> None:
        """Handle a call that has just returned, including in-place calls."""

    def on_output(self, tensor: torch.Tensor) -> None:
        """Handle the next output tensor of the model, after the forward."""


class SizeObserver(ABC):
    """An observer that also provides the shapes that code reads from tensors."""

    @abstractmethod
    def on_shape(self, tensor: torch.Tensor) -> torch.Size:
        """Return the shape of a tensor, whose integers can carry further information."""


def watch_shapes(
    model: nn.Module,
    example_inputs: ExampleInputs,
    observers: Callable[[], Sequence[Observer]],
    *,
    train: bool = False,
) -> None:
    """Run one forward of `model` with observers, as `by_shapes` does, without building a graph.

    Args:
        model: Any module.
        example_inputs: As for `trace`.
        observers: Creates the observers; those created last have seen the whole forward.
        train: Run in training mode, else in evaluation mode.

    Raises:
        ArgumentError: `example_inputs` has no accepted form.
        TracingError: the model rejects the inputs, or returns no tensor.
    """

    def watched(shortcut: Shortcut | None, modules: Modules) -> None:
        mode = CallMode(ModuleStack(model, modules), first_names(modules), observers(), shortcut)
        forward(model, example_inputs, mode, train=train)

    by_shapes(model, example_inputs, watched)


def by_shapes(
    model: nn.Module,
    example_inputs: ExampleInputs,
    attempt: Callable[[Shortcut | None, Modules], R],
) -> R:
    """Return the result of `attempt` for a forward that takes a fraction of the usual time.

    Computations that affect only values are skipped, unless the model reads values; tensors that
    the model would keep for later forwards are dropped. Weights on "meta" are replaced by zeros.
    """
    as_call(example_inputs)
    modules = named_modules(model)
    zeros = zeros_for_meta(module for _, module in modules)
    with suppress(TracingError, ValuesNeeded), zeros as without_values:
        return attempt(Shortcut(without_values), modules)
    # zeros may cause errors; if the inputs are at fault, the error recurs with values
    return attempt(None, modules)


def forward(
    model: nn.Module, example_inputs: ExampleInputs, mode: "CallMode", *, train: bool
) -> None:
    """Run `model` once under `mode` without changing it; arguments as for `trace`."""
    require_whole(model, "traced", is_only_run=True, modules=mode.stack.named_modules)
    args, kwargs = mode.own_inputs(as_call(example_inputs))
    if mode.is_by_shapes:
        args, kwargs = with_values(model, (args, kwargs))
    with torch.no_grad(), unchanged(model, train=train) as modules, mode.without_writes(modules):
        for tensor in tensors_in((args, kwargs)):
            mode.take_input(tensor)
        listening = mode.stack.listening()
        with _explained(model, (args, kwargs)), without_collections(), listening, mode:
            result = model(*args, **kwargs)
        outputs = tensors_in(result)
        if not outputs:
            raise TracingError(
                f"{type(model).__name__} returned a {type(result).__name__} without any tensor; "
                "a graph ends in tensors. Let forward return a tensor, or a tuple, mapping or "
                "dataclass that holds some."
            )
        for tensor in outputs:
            mode.take_output(tensor)


@contextmanager
def _explained(model: nn.Module, call: tuple[Any, ...]) -> Iterator[None]:
    try:
        yield
    except NNCFXError:
        raise
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        if any(one.__module__ == "torch._dynamo.exc" for one in type(error).__mro__):
            line = users_line(error)
            place = "" if line is None else f" at {line.filename}, line {line.lineno}"
            raise TracingError(
                f"The forward of {type(model).__name__} calls a function that torch compiles, "
                f"such as torch.cond or torch.while_loop{place}: nncfx cannot look into that. "
                "Use torch.where, or an 'if' or a loop of Python, whose path the example inputs "
                "choose."
            ) from None
        shapes = ", ".join(f"{list(one.shape)} {one.dtype}" for one in tensors_in(call))
        raise TracingError(
            f"{type(model).__name__} refuses the example inputs: {error_text(error)}. They are "
            f"{shapes.replace('torch.', '') or 'no tensors'}. Pass what its forward takes: "
            f"{INPUT_FORMS}; on the model's device, in its dtype. A config's 'input_info' makes "
            "them by its 'sample_size'."
        ) from error


_SHAPE: Any = torch.Tensor.shape  # torch reports the getter of this descriptor
_SET_DATA: Final = torch.Tensor.data.__set__  # type: ignore[attr-defined]  # a descriptor, too
_SIZES: Final = frozenset([_SHAPE.__get__, torch.Tensor.size])


class CallMode(TorchFunctionMode):
    """Turns every call that torch reports into a `TracedCall` and passes it to observers.

    Attributes:
        stack: The module calls in progress.
        kept: Whether tensors were made in functions whose results are kept.
    """

    _builds_graph: ClassVar[bool] = False
    """Whether `_drawn` returns nodes, which need the site of a call; it takes a while to find."""

    def __init__(
        self,
        stack: ModuleStack,
        names: Mapping[int, str],
        observers: Sequence[Observer],
        shortcut: Shortcut | None,
        numbers: CallNumbers | None = None,
    ) -> None:
        """Create a mode for one forward.

        Args:
            stack: The module stack of the model.
            names: The first dotted name of every parameter and buffer, by `id`.
            observers: Called for inputs, calls and outputs, in the given order.
            shortcut: Runs the functions; None to run them normally.
            numbers: The call numbers of an earlier trace.
        """
        super().__init__()
        self.stack = stack
        self.kept = KeptResults()
        self._names = names
        self._observers = observers
        self._is_followed = bool(observers) or self._builds_graph
        self._shortcut = shortcut
        self._sizes = [one for one in observers if isinstance(one, SizeObserver)]
        self._numbers = CallNumbers() if numbers is None else numbers
        self._writes: ParameterWrites | None = None
        # returns the information on operands that `_drawn` needs, before the call changes them
        self._described: Callable[[Sequence[torch.Tensor]], tuple[TensorInfo, ...]] = _undescribed

    @contextmanager
    def without_writes(self, modules: Iterable[nn.Module]) -> Iterator[None]:
        """Restore on exit the values of the parameters of `modules` that calls change."""
        self._writes = ParameterWrites(modules)
        try:
            yield
        finally:
            self._writes.undo()
            self._writes = None

    @property
    def is_by_shapes(self) -> bool:
        """Whether contractions are skipped."""
        return self._shortcut is not None

    def own_inputs(self, call: C) -> C:
        """Return arguments of the model with tensors of their own, which its code may change."""
        return own_tensors(call) if self._shortcut is None else self._shortcut.own_inputs(call)

    def take_input(self, tensor: torch.Tensor) -> None:
        """Pass the next input of the model to observers."""
        for observer in self._observers:
            observer.on_input(tensor)

    def take_output(self, tensor: torch.Tensor) -> None:
        """Pass the next output of the model to observers."""
        for observer in self._observers:
            observer.on_output(tensor)

    def _data_set(self, tensor: torch.Tensor, data: torch.Tensor) -> None:
        """Record that `tensor` now holds `data`."""

    def _drawn(
        self,
        frame: Frame,
        spot: Spot,
        inputs: Sequence[torch.Tensor],
        infos: tuple[TensorInfo, ...],
        produced: Sequence[torch.Tensor],
    ) -> Operation | None:
        """Return the graph's node of a call; None if it has no node or no graph is built."""
        del frame, spot, inputs, infos, produced
        return None

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is COMPOSITE:
            with self:
                return composite_apart(*args, **kwargs)
        inputs = tensors_in((*args, *kwargs.values()) if kwargs else args)
        infos = self._described(inputs)
        name = spelling(func, kwargs)
        written = self._writes.expect(name, args, kwargs) if self._writes is not None else ()
        result = self._run(Invocation(func, name, args, kwargs, inputs))
        results = tensors_in(result) if self._is_followed else []
        # an assignment to elements returns None and changes its first argument
        produced = [args[0]] if name == "__setitem__" else results
        if not produced:
            if func == _SET_DATA:
                self._data_set(*args)
            return result
        frame = self.stack.top
        place = sys._getframe(1)  # noqa: SLF001 (no public way)
        if not inputs:  # what functions keep they make of none
            self.kept.see(place, frame.caller)
        site = call_site(place, frame.caller, frame.visit) if self._builds_graph else ()
        spot = self._spot(frame.scope, name, site, (args, kwargs), inputs)
        operation = self._drawn(frame, spot, inputs, infos, produced)
        for one in written:
            self._data_set(one, produced[0])
        if self._observers:
            call = TracedCall(
                *(func, args, kwargs, result, spot.address, frame.module, frame.module_class),
                *(operation, self._names, inputs, results),
            )
            for observer in self._observers:
                observer.on_call(call)
        return result

    def _run(self, call: Invocation) -> Any:
        if call.func in _SIZES:
            return self._size(*call.args, **call.kwargs)
        if self._shortcut is None:
            return call.func(*call.args, **call.kwargs)
        return self._shortcut.run(call)

    def _size(self, tensor: torch.Tensor, dim: int | None = None) -> Any:
        shape = self._sizes[0].on_shape(tensor) if self._sizes else tensor.shape
        return shape if dim is None else shape[dim]

    def _spot(
        self,
        scope: str,
        name: str,
        site: Site,
        call: tuple[tuple[Any, ...], Mapping[str, Any]],
        inputs: Sequence[torch.Tensor],
    ) -> Spot:
        args, kwargs = call
        what = kind(name) if inputs else Kind.CONSTRUCTOR
        if what == Kind.OPERATION and is_left_out():
            what = Kind.PASSING
        if what != Kind.OPERATION:
            return Spot(what, name, site, 0, "")
        number = self._numbers.number(scope, name, site)
        equation = str(args[0]) if name == "einsum" else ""
        fill = _fill(*args, **kwargs) if name == "pad" else 0.0
        return Spot(what, name, site, number, f"{scope}/{name}_{number}", equation, fill)


def _undescribed(inputs: object) -> tuple[()]:
    del inputs
    return ()


def _fill(
    input: object,  # noqa: A002 (as F.pad has it)
    pad: object,
    mode: str = "constant",
    value: object = None,
) -> float:
    del input, pad, mode
    return float(value) if isinstance(value, int | float) else 0.0
