"""Carry torch's fake-quantize operations through the exporter, one node each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import torch

from nncfx.errors import ExportError
from nncfx.export.ir.graph_edits import constant_of, input_of

if TYPE_CHECKING:
    import onnx_ir as ir

# ruff: noqa: ANN401 (symbolic values of the exporter)

DOMAIN: Final = "nncfx"
"""The domain of the node that represents a fake-quantize until it is lowered."""

FAKE_QUANTIZE: Final = "FakeQuantize"
_FLOATS: Final = ("tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)")
_ZERO_POINTS: Final = ("tensor(int32)", "tensor(int64)", *_FLOATS)
_PER_TENSOR: Final = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """The values of a quantized tensor: `(q - zero_point) * scale`, with `low <= q <= high`.

    Attributes:
        scale: float32, positive; of shape `()`, or `(channels,)` along `axis`.
        zero_point: int64, of the shape of `scale`.
        axis: the axis of the channels; None if the whole tensor has one scale.
        low: the least integer.
        high: the greatest integer.
    """

    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int64]
    axis: int | None
    low: int
    high: int

    def equals(self, other: "Grid") -> bool:
        """Return whether both grids represent the same values by the same integers."""
        return (
            (self.axis, self.low, self.high) == (other.axis, other.low, other.high)
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )

    def integers(self, values: npt.NDArray[np.floating]) -> npt.NDArray[np.int64]:
        """Return the integers of `values`, rounded half to even as in torch, then clamped."""
        scale, zero_point = self.along(values.ndim)
        rounded = np.rint(values.astype(np.float32) * (np.float32(1) / scale)) + zero_point
        return np.clip(rounded, self.low, self.high).astype(np.int64)

    def along(self, ndim: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return scale and zero point in a shape that broadcasts to `ndim` axes."""
        if self.axis is None:
            return self.scale, self.zero_point
        shape = [1] * ndim
        shape[self.axis] = -1
        return self.scale.reshape(shape), self.zero_point.reshape(shape)


def is_fake_quantize(node: "ir.Node | None") -> bool:
    """Return whether `node` represents a fake-quantize."""
    return node is not None and node.domain == DOMAIN and node.op_type == FAKE_QUANTIZE


def grid_of(node: "ir.Node") -> Grid:
    """Return the grid of a fake-quantize node.

    Raises:
        ExportError: its scale or zero point depends on the input, or its scale is not positive
            and finite.
    """
    scale, zero_point = (constant_of(input_of(node, index)) for index in (1, 2))
    name = input_of(node).name
    if scale is None or zero_point is None:
        raise ExportError(
            f"The quantizer of '{name}' computes its scale or zero point from the input; a file "
            "holds constants only. Freeze the range before exporting."
        )
    scale = scale.astype(np.float32)
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        raise ExportError(
            f"The quantizer of '{name}' has a scale of {scale.min()}; a scale is positive and "
            "finite. Calibrate it with data that reaches this tensor."
        )
    low, high = (node.attributes[key].as_int() for key in ("quant_min", "quant_max"))
    axis = node.attributes["axis"].as_int()
    per_tensor = axis == _PER_TENSOR or scale.size == 1
    return Grid(
        scale=scale.reshape(() if per_tensor else -1),
        zero_point=np.clip(np.rint(zero_point), low, high)
        .astype(np.int64)
        .reshape(() if per_tensor else -1),
        axis=None if per_tensor else axis,
        low=low,
        high=high,
    )


def translations() -> Mapping[Any, Callable[..., Any]]:
    """Return the translation of each fake-quantize operation, for torch's exporter."""
    aten = torch.ops.aten
    return {
        aten.fake_quantize_per_tensor_affine.tensor_qparams: _per_tensor,
        aten.fake_quantize_per_tensor_affine.default: _per_tensor_of_numbers,
        aten.fake_quantize_per_channel_affine.default: _per_channel,
        aten._fake_quantize_learnable_per_tensor_affine.default: _per_tensor,  # noqa: SLF001 (torch's own name for it)
        aten._fake_quantize_learnable_per_channel_affine.default: _per_channel,  # noqa: SLF001 (the same)
    }


def _per_tensor(
    self: Any,
    scale: Any,
    zero_point: Any,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Any:
    return _per_channel(self, scale, zero_point, _PER_TENSOR, quant_min, quant_max, grad_factor)


def _per_tensor_of_numbers(
    self: Any, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Any:
    from onnxscript import opset20 as op

    values = op.Constant(value_float=scale), op.Constant(value_int=zero_point)
    return _per_tensor(self, *values, quant_min, quant_max)


def _per_channel(  # noqa: PLR0913, PLR0917 (the signature is torch's)
    self: Any,
    scale: Any,
    zero_point: Any,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Any:
    del grad_factor
    attributes = {"axis": axis, "quant_min": quant_min, "quant_max": quant_max}
    return _operator()(self, scale, zero_point, **attributes)


@cache
def _operator() -> Any:
    """Return the placeholder as an operator that the exporter can record."""
    import onnxscript
    from onnx.defs import OpSchema

    # Not registered, because torch's optimizer would fold an operator that it knows.
    schema = OpSchema(
        FAKE_QUANTIZE,
        DOMAIN,
        1,
        inputs=[
            OpSchema.FormalParameter("x", "T"),
            OpSchema.FormalParameter("scale", "T"),
            OpSchema.FormalParameter("zero_point", "Z"),
        ],
        outputs=[OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", list(_FLOATS), ""), ("Z", list(_ZERO_POINTS), "")],
        attributes=[
            OpSchema.Attribute(name, OpSchema.AttrType.INT, "")
            for name in ("axis", "quant_min", "quant_max")
        ],
    )
    return onnxscript.values.Op(onnxscript.values.Opset(DOMAIN, 1), FAKE_QUANTIZE, schema)
