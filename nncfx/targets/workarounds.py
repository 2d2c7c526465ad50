"""Problems of vendors' runtimes that the export works around, with their sources.

Each problem has a canary (`tests/targets/test_workarounds.py`): a small file that shows it. When a
canary fails, the vendor has fixed the problem: set `fixed_in` to the version, and remove the
workaround when nncfx no longer supports older versions.
"""

from dataclasses import dataclass
from typing import Final

_ONNXRUNTIME: Final = "https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core"
_QDQ: Final = f"{_ONNXRUNTIME}/optimizer/qdq_transformer"
_OPENVINO: Final = (
    "https://github.com/openvinotoolkit/openvino/blob/master/src/common/transformations/src/"
    "transformations/common_optimizations"
)


@dataclass(frozen=True, kw_only=True)
class Workaround:
    """A problem of a runtime, and the export pass that works around it.

    Attributes:
        name: Of the problem.
        applied_by: The pass that works around it, as named in a `Target`.
        runtime: The Python package with the problem.
        seen: The newest version of the package in which it was seen.
        problem: What the runtime does.
        link: The corresponding place in its source.
        fixed_in: The version that fixed the problem, if there is one.
    """

    name: str
    applied_by: str
    runtime: str
    seen: str
    problem: str
    link: str
    fixed_in: str | None = None


WORKAROUNDS: Final = (
    Workaround(
        name="clamps_in_float",
        applied_by="clamp_by_quantizers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="computes a convolution in float if a clamp that reaches less far than the grid "
        "is between it and its quantizer",
        link=f"{_QDQ}/clip_quantizelinear.cc",
    ),
    Workaround(
        name="float_weights_rounded",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="rounds float weights to 8 bits for the whole tensor if the layer is between "
        "quantized tensors",
        link=f"{_QDQ}/weight_bias_quantization.cc",
    ),
    Workaround(
        name="clamps_taken_for_ends",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="computes a Gemm of integers in float if a ReLU without a quantizer follows",
        link=f"{_QDQ}/selectors_actions/qdq_selectors.cc",
    ),
    Workaround(
        name="results_read_twice",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="computes a product of integers in float if a quantizer and something else "
        "read it",
        link=f"{_QDQ}/selectors_actions/qdq_selectors.cc",
    ),
    Workaround(
        name="biases_make_products_flat",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="reshapes a product of more than two axes for a Gemm with its bias, and then "
        "finds no integers in front of it",
        link=f"{_ONNXRUNTIME}/optimizer/matmul_add_fusion.cc",
    ),
    Workaround(
        name="softmax_table_overflows",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.31.1",
        fixed_in="1.32.0",
        problem="computes the softmax of bytes from a table that overflows where all of n outputs "
        "are near 1 / n, and makes the largest ones 0",
        link=f"{_ONNXRUNTIME.removesuffix('/core')}/contrib_ops/cpu/quantization/"
        "qlinear_softmax.cc",
    ),
    Workaround(
        name="cubic_resizes_refused",
        applied_by="add_fusion_barriers",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="moves channels last after convolutions of integers, and refuses a cubic resize "
        "to fewer pixels that then reads them so",
        link=f"{_ONNXRUNTIME}/providers/cpu/tensor/upsamplebase.h",
    ),
    Workaround(
        name="decoded_in_each_call",
        applied_by="decode_on_loading",
        runtime="onnxruntime",
        seen="1.32.0",
        problem="folds no DequantizeLinear of a constant, but decodes it in each call, also where "
        "the layer that reads it computes in float",
        link=f"{_ONNXRUNTIME}/optimizer/constant_folding.cc",
    ),
    Workaround(
        name="strides_moved",
        applied_by="subsample_pixels",
        runtime="openvino",
        seen="2026.4.1",
        problem="moves the stride of convolutions of single pixels between a tensor's integers "
        "and their scale, and then computes the convolutions in float",
        link=f"{_OPENVINO}/strides_optimization.cpp",
    ),
    Workaround(
        name="padded_with_zero_bytes",
        applied_by="average_padding_in_float",
        runtime="openvino",
        seen="2026.4.1",
        problem="puts bytes of 0 around the bytes of an image that is averaged with its padding, "
        "whatever byte stands for zero",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/"
        "low_precision_transformations/src/avg_pool.cpp",
    ),
    Workaround(
        name="circular_padding_refused",
        applied_by="wrap_by_slices",
        runtime="openvino",
        seen="2026.4.1",
        problem="refuses a Pad of the mode wrap",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/frontends/onnx/frontend/"
        "src/op/pad.cpp",
    ),
    Workaround(
        name="recurrent_weights_refused",
        applied_by="write_recurrent_weights_in_float",
        runtime="openvino",
        seen="2026.4.1",
        problem="refuses a GRU, or an LSTM in one direction, whose weights are integers with a "
        "scale if the model quantizes activations",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/plugins/intel_cpu/src/"
        "nodes/rnn.cpp",
    ),
    Workaround(
        name="joined_tokens_refused",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="moves a quantizer with a zero point in front of a concatenation along any axis "
        "but the last, and then refuses the product with stored integers that reads it",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/"
        "low_precision_transformations/src/mat_mul.cpp",
    ),
    Workaround(
        name="rounded_extremes_wrong",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="computes the greatest or least of floats along axes wrongly where a quantizer "
        "follows, which it makes a part of the reduction",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/plugins/intel_cpu/src/"
        "nodes/reduce.cpp",
    ),
    Workaround(
        name="flat_products_unwritten",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="makes one kernel of small products of matrices in a row without biases, which "
        "reads memory that nothing has written",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/snippets/src/"
        "pass/tokenization.cpp",
    ),
    Workaround(
        name="memories_unwritten",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="makes one kernel of a product of integers, a softmax and a product by a weight "
        "that it decodes, which reads memory that nothing has written",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/snippets/src/"
        "pass/mha_tokenization.cpp",
    ),
    Workaround(
        name="layers_of_constants_refused",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="fails to fold a Gemm of a constant by a weight that it decodes",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/inference/src/dev/"
        "make_tensor.cpp",
    ),
    Workaround(
        name="channels_padded_with_zero_bytes",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="puts bytes of 0 next to channels that are integers, where their zero point is "
        "meant",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/"
        "low_precision_transformations/src/pad.cpp",
    ),
    Workaround(
        name="biases_of_open_batches_lost",
        applied_by="separate_biases",
        runtime="openvino",
        seen="2026.4.1",
        problem="takes the number of examples from a convolution before its bias, which it then "
        "moves wrongly into the quantizer after it, where the model reads that number",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/transformations/"
        "src/transformations/symbolic_transformations/symbol_optimization.cpp",
    ),
    Workaround(
        name="shuffled_channels_refused",
        applied_by="add_quantizer_barriers",
        runtime="openvino",
        seen="2026.4.1",
        problem="moves a quantizer with a zero point in front of a concatenation of channels, and "
        "then refuses the DepthToSpace that makes pixels of them",
        link="https://github.com/openvinotoolkit/openvino/blob/master/src/common/"
        "low_precision_transformations/src/depth_to_space.cpp",
    ),
)
"""All workarounds; a `Target` names the passes that it needs."""
