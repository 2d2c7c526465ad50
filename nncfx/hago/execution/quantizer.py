"""Builds a simulated and an integer graph from a strategy."""

import torch

from nncfx.errors import CompressionError
from nncfx.hago.execution.exportable import exportable_model
from nncfx.hago.execution.inspection import GraphStatistics, inspect_plan, simulated_outputs
from nncfx.hago.execution.realization import QuantizedGraph
from nncfx.hago.execution.simulation import SimulatedGraph
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.strategy.edge_plan import Plan, make_plan
from nncfx.hago.strategy.strategy import Strategy, require_hash, require_inputs
from nncfx.network import NNCFNetwork
from nncfx.targets import Hardware
from nncfx.tracing import ExampleInputs


class Quantizer:
    """Builds the graphs for a strategy; created by `create_quantizer`.

    Attributes:
        graph: The model to quantize.
        hardware: The hardware to quantize for.
        strategy: How to quantize.
        plan: The processing of every edge.
    """

    def __init__(self, graph: QuantGraph, hardware: Hardware, strategy: Strategy) -> None:
        self.graph, self.hardware, self.strategy = graph, hardware, strategy
        self.plan: Plan = make_plan(graph, hardware, strategy)

    def simulate(self, dtype: torch.dtype = torch.float64) -> SimulatedGraph:
        """Return the model with simulated quantization of every tensor, computed in floats.

        In float64 the result equals that of `quantize`, bit for bit; float32 is faster, and close.
        """
        return SimulatedGraph(self.graph, self.plan, dtype)

    def quantize(self) -> QuantizedGraph:
        """Return the model in integers, after comparing it with the simulation.

        Both are run once on the example inputs.

        Raises:
            CompressionError: an operation cannot be computed in integers, or its result differs
                from
                the simulation; the message names it. This means that a rule or a kernel is wrong.
        """
        quantized = QuantizedGraph(self.graph, self.plan)
        self._check(quantized)
        return quantized

    def exportable(self) -> NNCFNetwork:
        """Return the model with torch's fake-quantize operations, for `nncfx.export_onnx`.

        The file then holds integer weights and pairs of QuantizeLinear and DequantizeLinear.
        Edges of more than 16 bits stay in float.
        """
        return exportable_model(self.graph, self.plan, self.hardware)

    def inspect_graph_statistic(
        self, inputs: ExampleInputs, limit: float = 0.05
    ) -> GraphStatistics:
        """Return every operation's output on `inputs`: real, simulated and in integers.

        Args:
            inputs: Of the model.
            limit: The relative error, as a share of the largest magnitude, above which it is bad.
        """
        return inspect_plan(self.graph, self.plan, inputs, limit)

    def _check(self, quantized: QuantizedGraph) -> None:
        inputs = self.graph.example_inputs
        expected = simulated_outputs(self.graph, self.plan, inputs)
        integers = {self.graph.nodes[number].name for number in self.plan.outputs}
        for address, found in quantized.nodes(inputs).items():
            if address in integers & set(expected) and not torch.equal(found, expected[address]):
                raise CompressionError(
                    f"'{address}' gives integers that differ from the simulated ones by up to "
                    f"{float((found - expected[address]).abs().max()):g}. Its rule of scales or "
                    "its integer kernel is wrong, or its arguments mean something that integers "
                    "do not keep; describe it in float."
                )


def create_quantizer(graph: QuantGraph, hardware: Hardware, strategy: Strategy) -> Quantizer:
    """Return a quantizer of `graph` for `hardware` with `strategy`.

    Raises:
        ArgumentError: graph or hardware is something else.
        CompressionError: the strategy is for another model or other weights, has bits or
            thresholds out of range, or needs a descriptor that is missing.
    """
    require_inputs(graph, hardware)
    require_hash(strategy, graph.model_hash)
    return Quantizer(graph, hardware, strategy)
