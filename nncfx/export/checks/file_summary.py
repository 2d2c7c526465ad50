"""Summarize an ONNX file: inputs, operators, bytes of weights by type."""

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from nncfx.export.ir.onnx_file import read_onnx


@final
@dataclass(frozen=True, kw_only=True)
class ONNXSummary:
    """The contents of an ONNX file in numbers.

    Attributes:
        opset: Its operator set.
        inputs: Type and shape by name, such as "float32 ?x3x224x224".
        outputs: Likewise.
        operators: Number of nodes by operator, the most frequent first.
        weight_bytes: Bytes of the weights by type.
        size_bytes: Bytes on disk, including external weights.
    """

    opset: int
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Mapping[str, int]
    weight_bytes: Mapping[str, int]
    size_bytes: int


def summarize_onnx(path: str | os.PathLike[str]) -> ONNXSummary:
    """Return a summary of the ONNX file at `path`; external weights are not read.

    Raises:
        ExportError: the file is not an ONNX model.
        MissingExtraError: onnx is not installed.
    """
    path, model = Path(path), read_onnx(path, checks=True)
    graph = model.graph
    weights: Counter[str] = Counter()
    for one in graph.initializer:
        weights[_type(one.data_type)] += _bytes(one)
    beside = {
        entry.value
        for one in graph.initializer
        for entry in one.external_data
        if entry.key == "location"
    }
    return ONNXSummary(
        opset=max((one.version for one in model.opset_import if not one.domain), default=0),
        inputs={one.name: _value(one) for one in graph.input},
        outputs={one.name: _value(one) for one in graph.output},
        operators=dict(Counter(node.op_type for node in graph.node).most_common()),
        weight_bytes=dict(weights.most_common()),
        size_bytes=path.stat().st_size
        + sum(
            (path.parent / Path(name).name).stat().st_size
            for name in beside
            if (path.parent / Path(name).name).is_file()
        ),
    )


def _type(number: int) -> str:
    import onnx

    return str(onnx.helper.tensor_dtype_to_np_dtype(number).name)


def _value(info: Any) -> str:  # noqa: ANN401 (onnx's ValueInfoProto)
    tensor = info.type.tensor_type
    sizes = [
        str(one.dim_value) if one.HasField("dim_value") else one.dim_param or "?"
        for one in tensor.shape.dim
    ]
    return f"{_type(tensor.elem_type)} {'x'.join(sizes) or 'scalar'}"


_NARROW: Final = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float4_e2m1fn": 4}
"""Bits of the types narrower than a byte."""


def _bytes(tensor: Any) -> int:  # noqa: ANN401 (onnx's TensorProto)
    import onnx

    found = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    bits = _NARROW.get(found.name, 8 * int(found.itemsize))
    return -(-math.prod(map(int, tensor.dims)) * bits // 8)
