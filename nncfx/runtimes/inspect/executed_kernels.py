"""Finds the operations of a file that ONNX Runtime computes in integers."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nncfx.runtimes.backends.onnx_runtime import OnnxRuntime
from nncfx.runtimes.protocol.runtime import BuildOptions
from nncfx.tracing import ExampleInputs

_INTEGER_CONTRACTIONS: Final = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "MatMulNBits",
        "QAttention",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
_FLOAT_CONTRACTIONS: Final = frozenset(
    {
        "Attention",
        "Conv",
        "ConvTranspose",
        "Einsum",
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "GRU",
        "Gemm",
        "LSTM",
        "MatMul",
        "MultiHeadAttention",
        "RNN",
    }
)
_KERNEL: Final = "_kernel_time"
_CONVERSIONS: Final = frozenset({"DequantizeLinear", "QuantizeLinear"})


@dataclass(frozen=True, kw_only=True)
class IntegerKernels:
    """How ONNX Runtime executes a file.

    Attributes:
        integer: names of the convolutions and matrix products that it computes in integers.
        float: names of those that it computes in float.
        conversions: number of remaining conversions between float and integers.
        operators: how often each operator runs.
    """

    integer: tuple[str, ...]
    float: tuple[str, ...]
    conversions: int
    operators: Mapping[str, int]


def integer_kernels(path: str | os.PathLike[str], inputs: ExampleInputs) -> IntegerKernels:
    """Return which operations of the ONNX file at `path` run in integers in ONNX Runtime.

    The result is ONNX Runtime's own record of one run on this machine; it chooses kernels by
    processor, so results on another machine can differ.

    Args:
        path: the file.
        inputs: the inputs to run it on.

    Raises:
        RuntimeFailure: there is no such file, or ONNX Runtime rejects it or the inputs.
        MissingExtraError: ONNX Runtime is not installed.
    """
    with OnnxRuntime().build(path, BuildOptions(profile=True)) as session:
        session.bind(inputs)()
        events = json.loads(session.finish_profile())
    kernels = [
        (event["name"].removesuffix(_KERNEL), event["args"]["op_name"])
        for event in events
        if event.get("cat") == "Node" and event["name"].endswith(_KERNEL)
    ]
    return IntegerKernels(
        integer=tuple(name for name, operator in kernels if operator in _INTEGER_CONTRACTIONS),
        float=tuple(name for name, operator in kernels if operator in _FLOAT_CONTRACTIONS),
        conversions=sum(operator in _CONVERSIONS for _, operator in kernels),
        operators=Counter(operator for _, operator in kernels),
    )
