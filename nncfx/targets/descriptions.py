"""The hardware descriptions that come with nncfx.

Source: the fusion rules of ONNX Runtime and OpenVINO on x86 with VNNI were measured (see
`docs/integer_export.md`), as was the gain without VNNI (`docs/benchmarks.md`); VTA and the
sample are those of Hago's example.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.targets.hardware import Descriptor, Hardware

__all__ = ["HARDWARE", "hardware_named"]


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
    activation: str,
    weight: str,
    elementwise: tuple[str, ...],
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
"""Four products of bytes are one instruction's lane, as one product of floats is."""

_OUTPUTS: Final = ("add", "avg_pool", "conv", "conv_transpose", "mul", "sigmoid")

_ONNXRUNTIME: Final = Hardware(
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
_ONNXRUNTIME_AVX2: Final = replace(
    _ONNXRUNTIME,
    name="onnxruntime_avx2",
    saturating_sums=True,
    mac_costs={"float32": 1.0, "int8": 0.5, "uint8": 0.5},
)
_OPENVINO: Final = Hardware(
    name="openvino",
    operations=_ONNXRUNTIME.operations,
    quantized_outputs=_OUTPUTS,
    unified_scales=("concat",),
    fused=_FUSED,
    alignment=16,
    mac_costs=_VNNI_COSTS,
)
_TENSORRT: Final = Hardware(
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
_TENSORRT_FP8: Final = Hardware(
    name="tensorrt-fp8",
    operations={
        **_byte_kernels("float8_e4m3", "float8_e4m3", ()),
    },
    symmetric_activations=True,
    fused=_FUSED,
    alignment=16,
)
_ARM_DOT: Final = Hardware(
    name="arm_dot",
    operations=_byte_kernels("int8", "int8", ("add", "avg_pool", "concat", "max_pool", "relu")),
    quantized_outputs=("add", "avg_pool", "conv"),
    unified_scales=("concat",),
    fused=_FUSED,
    alignment=4,
)
_VTA: Final = Hardware(
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
_HAGO: Final = Hardware(
    name="hago",
    operations={
        "add": (*_one("int32", output="int32"), _FLOAT),
        "conv": _one("int8", output="int32"),
        **dict.fromkeys(("relu", "clip", "max_pool"), _one("int32", output="int32")),
        "concat": (
            _FLOAT,
            *_one("int8", output="int8"),
            *_one("int32", output="int32"),
        ),
        "pad": (_FLOAT, *_one("int8", output="int8")),
        **dict.fromkeys(("linear", "avg_pool", "softmax", "mul", "sub", "view"), (_FLOAT,)),
    },
    per_channel_weights=True,
    symmetric_activations=True,
    unified_scales=("add", "concat"),
)

HARDWARE: Final[Mapping[str, Hardware]] = MappingProxyType(
    {
        one.name: one
        for one in (
            _ARM_DOT,
            _HAGO,
            _ONNXRUNTIME,
            _ONNXRUNTIME_AVX2,
            _OPENVINO,
            _TENSORRT,
            _TENSORRT_FP8,
            _VTA,
        )
    },
)
"""The descriptions by name."""


def hardware_named(name: str) -> Hardware:
    """Return the description called `name`.

    Raises:
        ArgumentError: there is none of that name.

    >>> hardware_named("onnxruntime").quantized("conv")
    Descriptor(inputs=('uint8', 'int8'), output='uint8')
    """
    if name not in HARDWARE:
        raise ArgumentError(
            f"There is no hardware '{name}'; known are {', '.join(sorted(HARDWARE))}."
            f"{did_you_mean(name, HARDWARE)} Describe another with nncfx.targets.Hardware.",
        )
    return HARDWARE[name]
