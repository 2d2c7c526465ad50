"""Records the calls of a model for inputs of given shapes, to run them again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import CompressionError
from nncfx.graph import Operation, input_address
from nncfx.hago.graph.overwriting import changes_in_place
from nncfx.tracing import ExampleInputs, TracedCall, run, trace
from nncfx.tracing.calls.function_names import Kind, kind, spelling
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.hooks.chain import substitute


@dataclass(frozen=True)
class Value:
    """The origin of a tensor.

    Attributes:
        name: The address of an input or an operation, the dotted name of a parameter, or "" for
            a constant.
        port: The output port of an operation.
        constant: The constant itself.
    """

    name: str
    port: int = 0
    constant: Tensor | None = None


@dataclass(frozen=True)
class Step:
    """One operation: the function, its arguments, and the origins of the tensors among them."""

    operation: Operation
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    values: tuple[Value, ...]

    def arguments(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with `tensors` at the ports, in order."""
        args, kwargs = _filled((self.args, dict(self.kwargs)), tensors)
        return args, kwargs


@dataclass(frozen=True)
class Program:
    """The steps of one forward, and the origins of the tensors that it returns.

    Attributes:
        steps: In execution order.
        results: The origin of each tensor of the result.
        template: The result, with other tensors.
        kind: The type of the result: the template has a plain dict for a mapping.
    """

    steps: tuple[Step, ...]
    results: tuple[Value, ...]
    template: Any
    kind: type

    def returned(self, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 (whatever the model returns)
        """Return the result of the model, with these tensors."""
        made = _filled(self.template, tensors)
        return self.kind(**made) if isinstance(made, dict) and _is_record(self.kind) else made


def record(model: nn.Module, inputs: ExampleInputs) -> Program:
    """Return the program of `model` for inputs with the same shapes and other arguments as these.

    Raises:
        CompressionError: the model assigns to elements of a tensor, or changes a view in place.
        TracingError: the model rejects the inputs.
    """
    recorder = _Recorder()
    trace(model, inputs, [recorder])
    with torch.no_grad():
        result = run(model, inputs)
    template = _filled(result, [_EMPTY] * len(tensors_in(result)))
    return Program(tuple(recorder.steps), tuple(recorder.results), template, type(result))


def _is_record(kind: type) -> bool:
    """Return whether it is a mapping with named fields, like the outputs of transformers."""
    return is_dataclass(kind) and issubclass(kind, Mapping)


_EMPTY: Final = torch.empty(0, device="cpu")


def _filled(template: Any, tensors: Sequence[Tensor]) -> Any:  # noqa: ANN401 (of any form)
    """Return `template` with its tensors replaced by `tensors`, in order."""
    chains = {port: lambda _, one=one: one for port, one in enumerate(tensors)}
    return substitute(template, chains)[0]


class _Recorder:
    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.results: list[Value] = []
        self._values: dict[int, Value] = {}
        self._alive: list[Tensor] = []
        self._inputs = 0

    def on_input(self, tensor: Tensor) -> None:
        self._bind(tensor, Value(input_address(self._inputs)))
        self._inputs += 1

    def on_call(self, call: TracedCall) -> None:
        given = tensors_in((call.args, call.kwargs))
        values = tuple(self._value(one, call.parameter_names) for one in given)
        produced = tensors_in(call.result)
        name = spelling(call.func, call.kwargs)
        if call.operation is None:
            if given and kind(name) != Kind.CONSTRUCTOR:
                for one in produced:
                    self._bind(one, values[0])
            return
        in_place = changes_in_place(name)
        is_view = any(one._is_view() for one in produced)  # noqa: SLF001 (as torch.Tensor documents it)
        if name == "__setitem__" or (in_place and is_view):
            raise CompressionError(
                f"'{call.operation.address}' changes a part of a tensor in place, which the "
                "integer graph cannot follow. Write it as a new tensor, with torch.cat or "
                "torch.where."
            )
        args, kwargs = _filled((call.args, dict(call.kwargs)), [_EMPTY] * len(given))
        self.steps.append(Step(call.operation, call.func, args, kwargs, values))
        for port, one in enumerate(produced):
            self._bind(one, Value(call.operation.address, port))

    def on_output(self, tensor: Tensor) -> None:
        self.results.append(self._value(tensor, {}))

    def _bind(self, tensor: Tensor, value: Value) -> None:
        self._alive.append(tensor)  # so no other tensor gets its id
        self._values[id(tensor)] = value

    def _value(self, tensor: Tensor, names: Mapping[int, str]) -> Value:
        if id(tensor) in self._values:
            return self._values[id(tensor)]
        if id(tensor) in names:
            return Value(names[id(tensor)])
        return Value("", constant=tensor.detach().clone())
