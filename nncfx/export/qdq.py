"""Write fake-quantized tensors as QuantizeLinear and DequantizeLinear."""

from typing import TYPE_CHECKING

import numpy as np

from nncfx.errors import ExportError
from nncfx.export.ir.fake_quantize import DOMAIN, Grid, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    replace_node,
)
from nncfx.export.ir.integer_weights import IntegerWeight, integer_weights, store
from nncfx.export.ir.number_types import activation_grid, number_type
from nncfx.export.passes.clamps import clamp_by_quantizers
from nncfx.export.passes.constant_folding import store_constant_values
from nncfx.export.passes.embeddings import look_up_integers
from nncfx.export.passes.folded_norms import fold_batch_norms
from nncfx.export.passes.fusion import arrange_quantizers
from nncfx.export.passes.fusion_barriers import fence_floats
from nncfx.export.passes.integer_biases import add_integer_biases
from nncfx.export.passes.integer_forms import (
    leave_out_borders,
    scale_after_products,
    use_global_pooling,
    use_matrix_products,
)
from nncfx.export.passes.packed_weights import pack_weights
from nncfx.export.passes.recurrent_weights import arrange_recurrent_weights
from nncfx.export.passes.silu import quantize_gates
from nncfx.export.passes.space_to_depth_stem import read_image_by_blocks
from nncfx.export.passes.subsampled_pixels import subsample_pixels
from nncfx.export.passes.tied_tables import share_tied_tables
from nncfx.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    import onnx_ir as ir

__all__ = ["write_quantized"]


def write_quantized(model: "ir.Model", target: Target) -> None:
    """Replace every fake-quantize of `model`, in place, by what `target` runs in integers.

    Weights become stored integers behind a `DequantizeLinear`, activations a pair of
    `QuantizeLinear` and `DequantizeLinear`, and biases int32 where the target wants that. Does
    nothing to a model without fake-quantize.

    Raises:
        ExportError: a quantizer that cannot be written: its scale is no constant, its integers
            need a type that the operator set of the model has not, or it quantizes other floats
            than float32.
    """
    from onnx_ir.passes.common import unused_removal

    graph = model.graph
    quantizers = [node for node in graph.all_nodes() if is_fake_quantize(node)]
    if not quantizers:
        return
    _refuse_other_floats(quantizers)
    store_constant_values(model)
    arrange_recurrent_weights(model, target)
    weights = integer_weights(graph, target)
    fold_batch_norms(graph, weights)
    if not target.float_results:
        use_matrix_products(graph, weights)
    if target.image_blocks:
        read_image_by_blocks(graph, weights)
    weights = look_up_integers(model, weights, target)
    if target.block_weights:
        weights = pack_weights(model, weights)
        share_tied_tables(graph)
    for weight in weights:
        store(weight, graph)
    _write_activations(graph, target)
    graph.sort()
    unused_removal.RemoveUnusedNodesPass()(model)
    model.opset_imports.pop(DOMAIN, None)


def _write_activations(graph: "ir.Graph", target: Target) -> None:
    use_global_pooling(graph)
    leave_out_borders(graph)
    scale_after_products(graph)
    arrange_quantizers(graph)
    subsample_pixels(graph, target)
    if "clamp_by_quantizers" in target.workarounds:
        clamp_by_quantizers(graph)
    if target.sigmoid_tables:
        quantize_gates(graph)
    for node in [one for one in graph if is_fake_quantize(one)]:
        _write_pair(node, activation_grid(grid_of(node), target), graph)
    if target.integer_bias:
        add_integer_biases(graph)
    if "fence_floats" in target.workarounds:
        fence_floats(graph)


def _refuse_other_floats(quantizers: "Iterable[ir.Node]") -> None:
    """Refuse tensors whose type the scales, which are float32, do not have.

    With scales rounded to 16 bits the file would hold other values than the simulation.
    """
    import onnx_ir as ir

    for node in quantizers:
        dtype = input_of(node).dtype
        if dtype not in {None, ir.DataType.FLOAT}:
            raise ExportError(
                f"'{input_of(node).name}' is quantized in {dtype.name.lower()}; files with "
                "integers are written from float32 models only. Export model.float().",
            )


def _write_pair(node: "ir.Node", grid: Grid, graph: "ir.Graph") -> None:
    import onnx_ir as ir

    source = input_of(node)
    values = constant_of(source)
    is_joined = all(one.op_type == "Concat" for one in consumers(node.outputs[0]))
    # a quantizer that has moved up to a constant; of one that is joined TensorRT wants the floats
    if values is not None and not is_joined:
        store(IntegerWeight(node=node, integers=grid.integers(values), grid=grid), graph)
        return
    dtype = number_type(grid, signed_first=False)
    constants = [
        add_constant(graph, f"{source.name}_scale", grid.scale),
        add_constant(graph, f"{source.name}_zero_point", grid.zero_point.astype(dtype.numpy())),
    ]
    producer = source.producer()
    metadata = {} if producer is None else producer.metadata_props
    along = {} if grid.axis is None else {"axis": grid.axis}
    quantize = ir.node(
        "QuantizeLinear", [source, *constants], along, metadata_props=dict(metadata)
    )
    graph.insert_before(node, quantize)
    integers = quantize.outputs[0]
    integers.type, integers.shape = ir.TensorType(dtype), source.shape
    # Some quantizers have fewer integers than their type, such as 4 bits; of int8, -128 may lack.
    limits = np.iinfo(dtype.numpy())
    least = limits.min + (limits.min < 0)
    if grid.low > least or grid.high < limits.max:
        bounds = [
            add_constant(graph, f"{source.name}_{end}", np.asarray(bound, dtype.numpy()))
            for end, bound in (("low", grid.low), ("high", grid.high))
        ]
        clip = ir.node("Clip", [integers, *bounds], metadata_props=dict(metadata))
        graph.insert_before(node, clip)
        clip.outputs[0].type, clip.outputs[0].shape = integers.type, integers.shape
        integers = clip.outputs[0]
    replace_node(
        node,
        ir.node("DequantizeLinear", [integers, *constants], along, metadata_props=dict(metadata)),
        graph,
    )
