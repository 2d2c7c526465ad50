"""Compares every operation of a quantized model in floats, simulated and in integers."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.hago.execution.realization import QuantizedGraph
from nncfx.hago.execution.simulation import SimulatedGraph, simulate_quantize
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.strategy.edge_plan import Plan
from nncfx.network import NNCFNetwork
from nncfx.quantization.ranges.observation import Note, probing
from nncfx.tracing import ExampleInputs, PostSite, Site, run
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.hooks.spelled_functions import is_known_function

_BAR: Final = 30


@dataclass(frozen=True)
class TensorSummary:
    """Minimum, maximum, mean and variance of a tensor."""

    least: float
    greatest: float
    mean: float
    variance: float

    @classmethod
    def of(cls, tensor: Tensor) -> "TensorSummary":
        """Return the summary of `tensor`, which has at least one element."""
        values = tensor.double()
        mean, variance = values.mean(), values.var(correction=0)
        return cls(float(values.min()), float(values.max()), float(mean), float(variance))


@dataclass(frozen=True)
class OperationStatistics:
    """One operation, in three arithmetics.

    Attributes:
        address: Of the operation.
        real: Output in floats.
        simulated: Output in the simulation of quantization.
        quantized: Output in integers.
        error: The largest difference between simulated and real.
        relative_error: The same, relative to the largest real magnitude; 0 if all is zero.
        is_exact: Whether the integers equal the simulation, bit for bit.
    """

    address: str
    real: TensorSummary
    simulated: TensorSummary
    quantized: TensorSummary
    error: float
    relative_error: float
    is_exact: bool


@dataclass(frozen=True)
class GraphStatistics:
    """All operations in execution order; `str` shows how the error grows.

    Attributes:
        operations: In execution order.
        limit: The relative error above which an operation is bad.
    """

    operations: tuple[OperationStatistics, ...]
    limit: float

    @property
    def first_bad(self) -> str | None:
        """The address of the first operation whose relative error is above the limit, if any."""
        bad = (one.address for one in self.operations if one.relative_error > self.limit)
        return next(bad, None)

    @property
    def first_inexact(self) -> str | None:
        """The address of the first operation with a different result in integers, if any."""
        return next((one.address for one in self.operations if not one.is_exact), None)

    @override
    def __str__(self) -> str:
        largest = max((one.relative_error for one in self.operations), default=0.0) or 1.0
        lines = [
            f"{one.relative_error:9.2%} {'#' * round(_BAR * one.relative_error / largest):<{_BAR}}"
            f" {'' if one.is_exact else '(integers differ) '}{one.address}"
            for one in self.operations
        ]
        bad = self.first_bad
        told = "none is" if bad is None else f"the first is {bad}"
        return "\n".join([*lines, f"Above {self.limit:.0%}: {told}."])


def inspect_plan(
    graph: QuantGraph, plan: Plan, inputs: ExampleInputs, limit: float = 0.05
) -> GraphStatistics:
    """Return the statistics of every operation of `graph` on `inputs`."""
    real = real_outputs(graph, inputs)
    simulated = simulated_outputs(graph, plan, inputs)
    integers = QuantizedGraph(graph, plan).nodes(inputs)
    rows = (
        _row(address, real[address], simulated[address], integers[address])
        for address in graph.model.nncf.graph.addresses
        if address in real and address in integers and real[address].is_floating_point()
    )
    return GraphStatistics(tuple(rows), limit)


def real_outputs(graph: QuantGraph, inputs: ExampleInputs) -> dict[str, Tensor]:
    """Return the outputs in floats of all operations that can have hooks, by address."""
    model = copy_of(graph.model)
    return _recorded(model, graph, model, inputs)


def simulated_outputs(graph: QuantGraph, plan: Plan, inputs: ExampleInputs) -> dict[str, Tensor]:
    """Return the simulated outputs of all operations that can have hooks, by address.

    Outputs that are integers are rounded to their grid and wrapped to their register.
    """
    simulated = SimulatedGraph(graph, plan, torch.float64)
    outputs = _recorded(simulated.model, graph, simulated, inputs)
    names = {graph.nodes[number].name: one for number, one in plan.outputs.items()}
    return {
        name: simulate_quantize(one, names[name]) if name in names else one
        for name, one in outputs.items()
    }


def _hookable(graph: QuantGraph) -> list[str]:
    return [
        one.name
        for _, one, operation in graph.calls()
        if is_known_function(operation.function) and operation.function != "__setitem__"
    ]


def _recorded(
    hooked: NNCFNetwork, graph: QuantGraph, model: nn.Module, inputs: ExampleInputs
) -> dict[str, Tensor]:
    outputs: dict[str, Tensor] = {}

    def noting(name: str) -> Note:
        def note(tensor: Tensor) -> None:
            outputs[name] = tensor.detach().clone()  # it can be changed in place later

        return note

    notes: dict[Site, Note] = {PostSite(one): noting(one) for one in _hookable(graph)}
    with probing(hooked, notes), torch.no_grad():
        run(model, inputs)
    return outputs


def _row(address: str, real: Tensor, simulated: Tensor, integers: Tensor) -> OperationStatistics:
    error = float((simulated - real.double()).abs().max())
    largest = float(real.abs().max())
    return OperationStatistics(
        address,
        TensorSummary.of(real),
        TensorSummary.of(simulated),
        TensorSummary.of(integers),
        error,
        error / largest if largest else 0.0,
        is_exact=torch.equal(simulated, integers),
    )
