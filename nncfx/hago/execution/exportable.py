"""Converts a plan to torch's fake-quantize operations, which the ONNX exporter supports."""

from nncfx.hago.execution.simulation import HookSites
from nncfx.hago.graph.quant_graph import NodeKind, QuantGraph
from nncfx.hago.strategy.edge_plan import Plan
from nncfx.network import NNCFNetwork
from nncfx.quantization import PlannedQuantizer, QuantizationPlan, QuantizerSpec
from nncfx.quantization.placement.insertions import insert_quantizers, place_quantizers
from nncfx.targets import Hardware, target_with
from nncfx.tracing.calls.model_copy import copy_of

_MOST_BITS = 16
"""The widest quantized integers in ONNX."""


def exportable_model(graph: QuantGraph, plan: Plan, hardware: Hardware) -> NNCFNetwork:
    """Return the model with a fake-quantize wherever `plan` rounds to at most 16 bits.

    Overflow is left out, and so are edges of more bits, which runtimes keep in float or in their
    own accumulators: a runtime rounds like the simulation, but not bit for bit.
    """
    model = copy_of(graph.model)
    sites = HookSites(graph)
    quantizers, scales = [], {}
    for number, one in plan.edges.items():
        if one.out_scale is None or one.is_kept or one.largest >= 1 << _MOST_BITS:
            continue
        edge, site = graph.edges[number], sites.of_edge(number)
        scale = scales[str(site)] = (
            one.out_scale.flatten() if one.out_scale.ndim else one.out_scale
        )
        is_constant = graph.nodes[edge.source].kind is NodeKind.CONSTANT
        quantizers.append(
            PlannedQuantizer(
                name=str(site),
                role="weight" if is_constant else "activation",
                spec=QuantizerSpec(
                    bits=one.largest.bit_length() + 1, narrow=True, axis=0 if scale.ndim else None
                ),
                sites=(site,),
                operations=(graph.nodes[edge.target].name,),
                scales=scale.numel() if scale.ndim else None,
            )
        )
    made = QuantizationPlan(
        hardware.name, tuple(quantizers), target=target_with(hardware), algorithm="hago"
    )
    hooks = place_quantizers(model, made)
    for hook in hooks:
        hook.set_qparams(scales[hook.planned.name].float())
    insert_quantizers(model, hooks)
    return model
