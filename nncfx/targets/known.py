"""The targets that come with nncfx.

Source: the fusion rules of ONNX Runtime and OpenVINO on x86 with VNNI were measured (see
`docs/integer_export.md`), as was the gain without VNNI (`docs/benchmarks/quantized_latency.md`);
VTA and the sample are those of Hago's example. Costs of copies are measured by
`benchmarks/unconstrained_costs.py`; for ONNX Runtime those per number come from a profile of
DenseNet-121, whose tensors, unlike those of the script, do not fit into the cache.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nncfx.targets.alignment import Alignment
from nncfx.targets.hardware import Descriptor, Hardware
from nncfx.targets.selection_cost import SelectionCost
from nncfx.targets.target import Target


def _one(*inputs: str, output: str) -> tuple[Descriptor, ...]:
    return (Descriptor(inputs=inputs, output=output),)


_POINTWISE: Final = "relu|clip"
_FUSED: Final = (
    ("conv|conv_transpose|linear", "batch_norm", _POINTWISE),
    ("conv|conv_transpose|linear", _POINTWISE),
    ("conv|conv_transpose|linear", "batch_norm"),
    ("add", _POINTWISE),
)


def _byte_kernels(
    activation: str, weight: str, elementwise: tuple[str, ...]
) -> dict[str, tuple[Descriptor, ...]]:
    contraction = _one(activation, weight, output=activation)
    kinds = ("conv", "conv_transpose", "linear")
    return {
        **dict.fromkeys(kinds, contraction),
        "matmul": _one(activation, output=activation),
        **dict.fromkeys(elementwise, _one(activation, output=activation)),
    }


_CPU: Final = ("add", "avg_pool", "concat", "max_pool", "mul", "relu", "clip", "sigmoid")
_VNNI_COSTS: Final = {"float32": 1.0, "int8": 0.25, "uint8": 0.25}
"""One instruction computes four products of bytes in the space of one product of floats."""

_OUTPUTS: Final = ("add", "avg_pool", "conv", "conv_transpose", "mul", "sigmoid")

_ORT_KERNELS: Final = Hardware(
    name="onnxruntime",
    operations={
        **_byte_kernels("uint8", "int8", _CPU),
        "embedding": _one("int8", output="float32"),
        "recurrent": _one("float32", "int8", output="float32"),
    },
    quantized_outputs=_OUTPUTS,
    unified_scales=("concat",),
    fused=_FUSED,
    alignment=16,
    mac_costs=_VNNI_COSTS,
)
_TENSORRT_KERNELS: Final = Hardware(
    name="tensorrt",
    operations={
        **_byte_kernels("int8", "int8", ("add", "avg_pool", "concat", "max_pool", "relu")),
        "embedding": _one("int8", output="float32"),
    },
    symmetric_activations=True,
    quantized_outputs=("add",),
    unified_scales=("concat",),
    fused=_FUSED,
    alignment=32,
)
_TENSORRT_FP8_KERNELS: Final = Hardware(
    name="tensorrt-fp8",
    operations=_byte_kernels("float8_e4m3", "float8_e4m3", ()),
    symmetric_activations=True,
    fused=_FUSED,
    alignment=16,
)
_ARM_KERNELS: Final = Hardware(
    name="arm_dot",
    operations=_byte_kernels("int8", "int8", ("add", "avg_pool", "concat", "max_pool", "relu")),
    quantized_outputs=("add", "avg_pool", "conv"),
    unified_scales=("concat",),
    fused=_FUSED,
    alignment=4,
)
_VTA_KERNELS: Final = Hardware(
    name="vta",
    operations={
        "conv": _one("int8", output="int32"),
        "linear": _one("int8", output="int32"),
        **dict.fromkeys(("add", "relu", "clip", "max_pool"), _one("int32", output="int32")),
    },
    per_channel_weights=False,
    symmetric_activations=True,
    power_of_two_scales=True,
    unified_scales=("add", "concat"),
    fused=_FUSED,
    alignment=16,
)
_FLOAT: Final = Descriptor(inputs=("float32",), output="float32")
_HAGO_KERNELS: Final = Hardware(
    name="hago",
    operations={
        "add": (*_one("int32", output="int32"), _FLOAT),
        "conv": _one("int8", output="int32"),
        **dict.fromkeys(("relu", "clip", "max_pool"), _one("int32", output="int32")),
        "concat": (_FLOAT, *_one("int8", output="int8"), *_one("int32", output="int32")),
        "pad": (_FLOAT, *_one("int8", output="int8")),
        **dict.fromkeys(("linear", "avg_pool", "softmax", "mul", "sub", "view"), (_FLOAT,)),
    },
    per_channel_weights=True,
    symmetric_activations=True,
    unified_scales=("add", "concat"),
)

_SEVEN_BITS: Final = (
    "7 bits of weights: overflow_fix='enable' (of QuantizeOptions, or next to 'algorithm': "
    "'quantization')"
)
_VECTORS: Final = Alignment(16, 4)
"""CPUs compute vectors of 16 floats."""

_ONNXRUNTIME: Final = Target(
    name="onnxruntime",
    runtime="onnxruntime",
    devices=("ANY", "CPU", "CPU_SPR", "TRIAL"),
    kernels=_ORT_KERNELS,
    alignment=_VECTORS,
    copies=SelectionCost(
        slice_ns=2000,
        slice_number_ns=0.19,
        is_slice_view=False,
        gather_ns=2000,
        gather_number_ns=0.19,
        mac_ns=0.008,
        layout_number_ns=0.1,
        alignment=Alignment(16),
    ),
    opset=21,
    newest_opset=23,
    space_to_depth_stem=True,
    sigmoid_tables=True,
    block_weights=True,
    folds_casts_of_weights=True,
    workarounds=("clamp_by_quantizers", "add_fusion_barriers", "decode_on_loading"),
    saturation_mend=(
        "Let the session have the config entry 'session.x64quantprecision' with '1', as nncfx's "
        "own runtime has (where layers share a weight, of the file that "
        f"nncfx.runtimes.unshare_weights writes); or, faster here, take {_SEVEN_BITS}, or "
        "target='onnxruntime-avx2'."
    ),
)
_TENSORRT: Final = Target(
    name="tensorrt",
    runtime="tensorrt",
    devices=("GPU",),
    kernels=_TENSORRT_KERNELS,
    alignment=Alignment(8),  # tiles of 8 halves
    opset=21,
    newest_opset=22,
    integer_bias=False,
    bfloat16=True,
    skips_zeros_2_4=True,  # from Ampere on, for half precision and int8
    missing={"copies": "no GPU was at hand when costs were measured"},
)

_ALL: Final = (
    _ONNXRUNTIME,
    replace(
        _ONNXRUNTIME,
        name="onnxruntime-avx2",
        devices=(),
        kernels=replace(
            _ORT_KERNELS,
            name="onnxruntime_avx2",  # as in logs of searches
            saturating_sums=True,
            mac_costs={"float32": 1.0, "int8": 0.5, "uint8": 0.5},
        ),
        # without VNNI products take longer than the copies that blocks avoid
        space_to_depth_stem=False,
    ),
    Target(
        name="openvino",
        runtime="openvino",
        devices=("NPU",),
        kernels=replace(_ORT_KERNELS, name="openvino"),
        alignment=_VECTORS,
        copies=SelectionCost(
            slice_ns=1250,
            slice_number_ns=0.28,
            is_slice_view=False,
            gather_ns=3300,
            gather_number_ns=0.36,
            mac_ns=0.0045,
            alignment=Alignment(16),
        ),
        opset=21,
        newest_opset=23,
        integer_bias=False,  # 2026.4 adds wrong biases if a layer runs twice
        float_results=True,
        workarounds=(
            "write_recurrent_weights_in_float",
            "subsample_pixels",
            "add_quantizer_barriers",
            "separate_biases",
            "average_padding_in_float",
            "wrap_by_slices",
        ),
        saturation_mend=f"OpenVINO has no setting for it: take {_SEVEN_BITS}.",
    ),
    _TENSORRT,
    # tiles of 32 bytes
    replace(_TENSORRT, name="tensorrt-int8", devices=(), alignment=Alignment(32)),
    Target(
        name="tensorrt-fp8",
        runtime="tensorrt",
        kernels=_TENSORRT_FP8_KERNELS,
        missing={"opset": "float8 is only simulated in files so far"},
    ),
    Target(
        name="torch",
        runtime="torch",
        copies=SelectionCost(
            slice_ns=3000,
            slice_number_ns=0.3,
            is_slice_view=True,
            gather_ns=3000,
            gather_number_ns=0.26,
            mac_ns=0.02,
            read_number_ns=0.5,
        ),
        missing={"opset": "torch runs the model itself"},
    ),
    Target(name="arm_dot", kernels=_ARM_KERNELS),
    Target(name="vta", kernels=_VTA_KERNELS),
    Target(name="hago", kernels=_HAGO_KERNELS),
)

TARGETS: Final[Mapping[str, Target]] = MappingProxyType({one.name: one for one in _ALL})
"""The targets by name."""
