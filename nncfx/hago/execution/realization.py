"""The quantized graph in integers: the reference for backends."""

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.graph import input_address
from nncfx.hago.execution.simulation import as_floats
from nncfx.hago.graph.call_program import Program, Step, Value, record
from nncfx.hago.graph.overwriting import changes_in_place
from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.rules.fixed_point import rescaled_integers
from nncfx.hago.rules.integer_kernels import IntegerCall, integer_result, narrow
from nncfx.hago.strategy.edge_plan import EdgePlan, Plan
from nncfx.network import unwrap
from nncfx.storage.models.model_state import model_state
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import tensors_in


def requantized(data: Tensor, plan: EdgePlan) -> Tensor:
    """Return the data as the integers (int64) or floats (float64) that `plan` requires."""
    if plan.in_scale is None:
        assert plan.out_scale is not None  # noqa: S101 (a float edge has no plan)
        steps = torch.round(data / plan.out_scale)
        return steps.clamp_(-plan.largest, plan.largest).to(torch.int64)
    if plan.out_scale is None:
        return data.double() * plan.in_scale
    steps = data.to(torch.int64)
    if plan.factor is None:
        return steps
    return rescaled_integers(steps, plan.factor).clamp_(-plan.largest, plan.largest)


class QuantizedGraph(nn.Module):
    """A quantized model in integers: called like the model, returns float64.

    Weights are stored as int8 (int16 or int32 if they have more bits), biases as int32. Between
    quantized operations there are only integers; sums wrap around at the width of their register,
    as in hardware. Operations that the hardware computes in float are computed in float64, from
    weights in the model's format. Calls are recorded for every new shape of the inputs. Runs on
    the CPU.

    It equals `SimulatedGraph` in float64, bit for bit.
    """

    def __init__(self, graph: QuantGraph, plan: Plan) -> None:
        super().__init__()
        self._graph, self._plan = graph, plan
        self._numbers = {node.name: number for number, node in enumerate(graph.nodes)}
        self._edges = {(one.target, one.port): n for n, one in enumerate(graph.edges)}
        source = unwrap(copy_of(graph.model))
        self._floats: dict[str, str] = {}
        for number, (name, tensor) in enumerate(_state_in_floats(source, graph, plan).items()):
            self._floats[name] = f"float_{number}"
            self.register_buffer(self._floats[name], tensor.detach())
        # in a list, so that its parameters are not registered in this module
        self._source = [source.double()]
        self._programs: dict[tuple[object, ...], Program] = {}
        for number, edge in plan.edges.items():
            node = graph.nodes[graph.edges[number].source]
            if node.kind is NodeKind.CONSTANT:
                steps = requantized(self._stored(node.name), edge)
                self.register_buffer(f"weight_{number}", narrow(steps, _register(edge)))
        for number, bias in plan.biases.items():
            steps = torch.round(self._stored(graph.biases[number]) / bias.scale.flatten())
            steps = steps.clamp_(-bias.largest, bias.largest).to(torch.int64)
            self.register_buffer(f"bias_{number}", narrow(steps, 32))
        self._record(graph.example_inputs)
        self.eval()

    @override
    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs of the model, with tensors in float64."""
        tensors = tensors_in((args, kwargs))
        program = self._programs.get(_signature(tensors))
        if program is None:
            program = self._record(kwargs or args)
        values = self.computed(program, tensors)
        returned = [
            self._as_floats(one, self._value(one, values).clone()) for one in program.results
        ]
        return program.returned(returned)

    def nodes(self, inputs: ExampleInputs) -> dict[str, Tensor]:
        """Return the first output of every operation, as float64, by address."""
        args, kwargs = as_call(inputs)
        tensors = tensors_in((args, kwargs))
        program = self._programs.get(_signature(tensors)) or self._record(inputs)
        values = self.computed(program, tensors)
        names = (one.operation.address for one in program.steps)
        return {name: self._as_floats(Value(name), values[name, 0]) for name in names}

    @torch.no_grad()
    def computed(
        self, program: Program, inputs: Sequence[Tensor]
    ) -> dict[tuple[str, int], Tensor]:
        """Return the outputs of every input and operation of `program`, by name and port."""
        values = {
            (input_address(index), 0): as_floats(tensor, torch.float64)
            for index, tensor in enumerate(inputs)
        }
        for step in program.steps:
            produced = self._result(step, values)
            for port, one in enumerate(tensors_in(produced)):
                values[step.operation.address, port] = one
        return values

    def _result(self, step: Step, values: dict[tuple[str, int], Tensor]) -> Any:  # noqa: ANN401 (a tensor, or several)
        number = self._numbers.get(step.operation.address)
        given = [
            self._given(number, port, self._value(one, values))
            for port, one in enumerate(step.values)
        ]
        if given and changes_in_place(step.operation.function):
            given[0] = given[0].clone()
        args, kwargs = step.arguments(given)
        if number is None or number not in self._plan.outputs:
            return step.func(*args, **kwargs)
        scale = self._plan.first_scales[number]
        result = integer_result(IntegerCall(step.operation, step.func, args, kwargs, scale))
        bits = self._plan.outputs[number].in_bits
        return [narrow(one, bits) for one in tensors_in(result)]

    def _given(self, number: int | None, port: int, value: Tensor) -> Tensor:
        """Return the value at an input port, in the format that the operation requires."""
        if number is None:
            return value
        if port == 2 and number in self._plan.biases:  # noqa: PLR2004 (the port of a bias)
            return self.get_buffer(f"bias_{number}").to(torch.int64)
        edge = self._edges.get((number, port))
        plan = None if edge is None else self._plan.edges.get(edge)
        if plan is None or edge is None:
            return value
        if self._graph.nodes[self._graph.edges[edge].source].kind is NodeKind.CONSTANT:
            return self.get_buffer(f"weight_{edge}").to(torch.int64)
        return requantized(value, plan)

    def _as_floats(self, value: Value, tensor: Tensor) -> Tensor:
        plan = self._plan.outputs.get(self._numbers.get(value.name, -1))
        return tensor if plan is None else requantized(tensor, plan)

    def _value(self, value: Value, values: dict[tuple[str, int], Tensor]) -> Tensor:
        if value.constant is not None:
            return value.constant
        found = values.get((value.name, value.port))
        return self._stored(value.name) if found is None else found

    def _stored(self, name: str) -> Tensor:
        if name in self._floats:
            held = self.get_buffer(self._floats[name])
            return held.double() if held.is_floating_point() else held
        tensor: Tensor = operator.attrgetter(name)(self._source[0])
        return tensor.detach()

    def _record(self, inputs: ExampleInputs) -> Program:
        floats = as_floats(inputs, torch.float64)
        program = record(self._source[0], floats)
        signature = _signature(tensors_in(as_call(inputs)))
        self._programs[signature] = program
        return program


def _state_in_floats(source: nn.Module, graph: QuantGraph, plan: Plan) -> dict[str, Tensor]:
    """Return the parameters and buffers of `source` that are needed as floats, by name."""
    reads = [(graph.nodes[one.source].name, n in plan.edges) for n, one in enumerate(graph.edges)]
    reads += [(name, number in plan.biases) for number, name in graph.biases.items()]
    reads += [(name, False) for name, _ in graph.returned]
    integers = {name for name, is_planned in reads if is_planned}
    integers -= {name for name, is_planned in reads if not is_planned}
    wanted = model_state(source).keys() - integers
    # a shared tensor is read under its first name
    named = [*source.named_parameters(), *source.named_buffers()]
    return {name: tensor for name, tensor in named if name in wanted}


def _register(plan: EdgePlan) -> int:
    return 8 if plan.largest < 1 << 7 else 16 if plan.largest < 1 << 15 else 32


def _signature(tensors: Sequence[Tensor]) -> tuple[object, ...]:
    return tuple((tuple(one.shape), one.is_floating_point()) for one in tensors)
