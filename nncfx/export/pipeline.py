"""The passes of the export, in their order."""

from collections.abc import Callable
from typing import Final

from nncfx.export.ir.export_pass import Draft, ExportPass
from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.integer_weights import integer_weights, store
from nncfx.export.passes.clamps import clamp_by_quantizers
from nncfx.export.passes.constant_folding import store_constant_values
from nncfx.export.passes.constant_sums import merge_constant_sums
from nncfx.export.passes.dead_branches import leave_out_dead_branches
from nncfx.export.passes.embeddings import look_up_integers, share_tied_tables
from nncfx.export.passes.float32_upcast import upcast_to_float32
from nncfx.export.passes.folded_norms import fold_batch_norms
from nncfx.export.passes.folded_weights import decode_on_loading, pack_int4
from nncfx.export.passes.fusion import arrange_quantizers
from nncfx.export.passes.fusion_barriers import add_fusion_barriers, add_quantizer_barriers
from nncfx.export.passes.integer_biases import add_integer_biases, separate_biases
from nncfx.export.passes.integer_forms import (
    average_padding_in_float,
    leave_out_borders,
    pad_in_pools,
    quantize_silu,
    scale_after_products,
    use_global_pooling,
    use_matrix_products,
    wrap_by_slices,
)
from nncfx.export.passes.packed_weights import IN_FLOAT, pack_weights
from nncfx.export.passes.recurrent_weights import (
    arrange_recurrent_weights,
    write_recurrent_weights_in_float,
)
from nncfx.export.passes.strides import subsample_pixels, use_space_to_depth_stem
from nncfx.export.qdq import remove_unused, write_pairs
from nncfx.targets import Target


def _works_around(name: str) -> Callable[[Target], bool]:
    return lambda target: name in target.workarounds


def _find_weights(draft: Draft) -> None:
    draft.weights = integer_weights(draft.graph, draft.target)


def _look_up(draft: Draft) -> None:
    draft.weights = look_up_integers(draft.model, draft.weights, draft.target)


def _pack(draft: Draft) -> None:
    ranges = {one for one in draft.graph if is_fake_quantize(one)}
    # where activations are quantized the plan says which inputs are rounded, and how
    is_planned = bool(ranges.difference(one.node for one in draft.weights))
    level = IN_FLOAT if is_planned else draft.target.accuracy_level
    draft.weights = pack_weights(draft.model, draft.weights, level)
    share_tied_tables(draft.graph)


def _store(draft: Draft) -> None:
    for weight in draft.weights:
        store(weight, draft.graph)


PASSES: Final[tuple[ExportPass, ...]] = (
    ExportPass(
        name="upcast_to_float32",
        reason="scales are float32, and not every runtime computes in bfloat16",
        run=lambda draft: upcast_to_float32(draft.model, draft.target),
        always=True,
        ensures=("quantized in float32",),
    ),
    ExportPass(
        name="store_constant_values",
        reason="a weight may be computed, such as from a mask: quantizers need its values",
        run=lambda draft: store_constant_values(draft.model),
        ensures=("constants stored",),
    ),
    ExportPass(
        name="arrange_recurrent_weights",
        reason="ONNX has the gates in another order than torch",
        run=lambda draft: arrange_recurrent_weights(draft.model),
        requires=("constants stored",),
    ),
    ExportPass(
        name="write_recurrent_weights_in_float",
        reason="OpenVINO refuses others next to quantized activations",
        run=lambda draft: write_recurrent_weights_in_float(draft.model, draft.target),
        applies=_works_around("write_recurrent_weights_in_float"),
    ),
    ExportPass(
        name="find_weights",
        reason="weights are known from here on; what is found changes before it is stored",
        run=_find_weights,
        requires=("constants stored", "quantized in float32"),
    ),
    ExportPass(
        name="fold_batch_norms",
        reason="scales of weights take norms up, exactly",
        run=lambda draft: fold_batch_norms(draft.graph, draft.weights),
    ),
    ExportPass(
        name="use_matrix_products",
        reason="where an integer convolution cannot end in float, a product can",
        run=lambda draft: use_matrix_products(draft.graph, draft.weights),
        applies=lambda target: not target.float_results,
    ),
    ExportPass(
        name="use_space_to_depth_stem",
        reason="three channels fill no vector, those of blocks of pixels do",
        run=lambda draft: use_space_to_depth_stem(draft.graph, draft.weights),
        applies=lambda target: target.space_to_depth_stem,
    ),
    ExportPass(
        name="look_up_integers",
        reason="a look-up reads rows, so only those are dequantized",
        run=_look_up,
    ),
    ExportPass(
        name="pack_weights",
        reason="layers that compute in float read weights in groups as the runtime packs them",
        run=_pack,
        applies=lambda target: target.block_weights,
    ),
    ExportPass(
        name="store_weights",
        reason="all others are integers before a DequantizeLinear",
        run=_store,
    ),
    ExportPass(
        name="leave_out_dead_branches",
        reason="thinning leaves a channel of a branch that is pruned whole; its sum is a constant",
        run=lambda draft: leave_out_dead_branches(draft.model),
        always=True,
    ),
    ExportPass(
        name="merge_constant_sums",
        reason="blocks whose branches are dead leave sums and rectifiers that are one of each",
        run=lambda draft: merge_constant_sums(draft.graph),
        always=True,
    ),
    ExportPass(
        name="use_global_pooling",
        reason="the pooling that runtimes have in integers",
        run=lambda draft: use_global_pooling(draft.graph),
    ),
    ExportPass(
        name="leave_out_borders",
        reason="ONNX Runtime's integer average divides by the window where padding is named",
        run=lambda draft: leave_out_borders(draft.graph),
    ),
    ExportPass(
        name="pad_in_pools",
        reason="no grid has minus infinity, which a pooling pads with by itself",
        run=lambda draft: pad_in_pools(draft.graph),
    ),
    ExportPass(
        name="scale_after_products",
        reason="scaled queries and keys would be floats where their product reads integers",
        run=lambda draft: scale_after_products(draft.graph),
    ),
    ExportPass(
        name="arrange_quantizers",
        reason="runtimes fuse quantizers at certain places only; every move is exact",
        run=lambda draft: arrange_quantizers(draft.graph),
    ),
    ExportPass(
        name="subsample_pixels",
        reason="a stride that OpenVINO would move between integers and their scale",
        run=lambda draft: subsample_pixels(draft.graph),
        applies=_works_around("subsample_pixels"),
    ),
    ExportPass(
        name="clamp_by_quantizers",
        reason="a clamp that reaches less far than the grid keeps the product before it in float",
        run=lambda draft: clamp_by_quantizers(draft.graph),
        applies=_works_around("clamp_by_quantizers"),
    ),
    ExportPass(
        name="quantize_silu",
        reason="a rounded sigmoid is taken from a table, and its product is one of integers",
        run=lambda draft: quantize_silu(draft.graph),
        applies=lambda target: target.sigmoid_tables,
    ),
    ExportPass(
        name="write_pairs",
        reason="no quantizer moves any more",
        run=write_pairs,
        ensures=("no fake quantizers",),
    ),
    ExportPass(
        name="add_integer_biases",
        reason="the scale of a bias is that of its inputs, which are written now",
        run=lambda draft: add_integer_biases(draft.graph),
        requires=("no fake quantizers",),
        applies=lambda target: target.integer_bias,
    ),
    ExportPass(
        name="average_padding_in_float",
        reason="OpenVINO puts bytes of 0 around images whose zero point is another one",
        run=lambda draft: average_padding_in_float(draft.graph),
        requires=("no fake quantizers",),
        applies=_works_around("average_padding_in_float"),
    ),
    ExportPass(
        name="add_fusion_barriers",
        reason="keeps the runtime from moving what is in float next to integers",
        run=lambda draft: add_fusion_barriers(draft.graph),
        requires=("no fake quantizers",),
        applies=_works_around("add_fusion_barriers"),
    ),
    ExportPass(
        name="add_quantizer_barriers",
        reason="quantizers that OpenVINO would move in front of joined tokens, or into extremes",
        run=lambda draft: add_quantizer_barriers(draft.graph),
        requires=("no fake quantizers",),
        applies=_works_around("add_quantizer_barriers"),
    ),
    ExportPass(
        name="separate_biases",
        reason="OpenVINO loses biases where the model reads how many examples there are",
        run=lambda draft: separate_biases(draft.graph),
        requires=("no fake quantizers",),
        applies=_works_around("separate_biases"),
    ),
    ExportPass(
        name="decode_on_loading",
        reason="weights of layers in float would be decoded again in each call",
        run=lambda draft: decode_on_loading(draft.model),
        requires=("no fake quantizers",),
        applies=_works_around("decode_on_loading"),
    ),
    ExportPass(
        name="pack_int4",
        reason="weights of four bits take half a byte in the file; the runtime unpacks them",
        run=lambda draft: pack_int4(draft.model),
        applies=lambda target: target.folds_casts_of_weights,
    ),
    ExportPass(
        name="wrap_by_slices",
        reason="OpenVINO reads no circular padding",
        run=lambda draft: wrap_by_slices(draft.graph),
        always=True,
        applies=_works_around("wrap_by_slices"),
    ),
    ExportPass(
        name="remove_unused",
        reason="what the others left behind",
        run=remove_unused,
        ensures=("no unused nodes",),
    ),
)
"""The passes in their order; those of other packages stand between (`register_export_pass`)."""
