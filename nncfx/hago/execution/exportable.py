"""A plan as torch's own fake-quantize operations, which the ONNX exporter writes as integers."""

from nncfx.hago.execution.simulation import HookSites
from nncfx.hago.graph.model_copies import plain_copy
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.strategy.edge_plan import EdgePlan, Plan
from nncfx.network import NNCFNetwork, wrap
from nncfx.quantization import Quantizer, QuantizerSpec
from nncfx.tracing import Insertion, Priority

__all__ = ["exportable_model"]

_MOST_BITS = 16
"""What ONNX has quantized numbers for."""


def exportable_model(graph: QuantGraph, plan: Plan) -> NNCFNetwork:
    """Return the model with a fake-quantize wherever `plan` rounds to at most 16 bits.

    Overflow, and edges of more bits, which runtimes keep in float or in their own accumulators,
    are left out: a runtime rounds like the simulation, but not bit for bit.
    """
    model = wrap(plain_copy(graph.model), graph.example_inputs)
    sites = HookSites(graph)
    model.nncf.register(
        Insertion(sites.of_edge(number), _quantizer(one), Priority.QUANTIZATION, "hago")
        for number, one in plan.edges.items()
        if one.out_scale is not None and not one.is_kept and one.largest < 1 << _MOST_BITS
    )
    model.nncf.commit()
    return model


def _quantizer(plan: EdgePlan) -> Quantizer:
    assert plan.out_scale is not None  # noqa: S101 (the edge is rounded)
    by_channel = plan.out_scale.ndim > 0
    bits = plan.largest.bit_length() + 1
    spec = QuantizerSpec(bits=bits, narrow=True, axis=0 if by_channel else None)
    scale = plan.out_scale.flatten() if by_channel else plan.out_scale
    quantizer = Quantizer(spec, tuple(scale.shape))
    quantizer.set_qparams(scale.float())
    return quantizer
