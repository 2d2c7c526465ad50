"""Write operations in forms for which runtimes have kernels, integer kernels if possible."""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import DOMAIN, FAKE_QUANTIZE, grid_of, is_fake_quantize
from nncfx.export.ir.graph_edits import (
    add_constant,
    constant_of,
    consumers,
    input_of,
    new_node,
    nodes_of,
    put_before,
    replace_node,
    shared_constant,
    sole_consumer,
)
from nncfx.export.ir.grid_propagation import is_quantized
from nncfx.export.ir.integer_weights import IntegerWeight
from nncfx.export.passes.fusion_barriers import maximum_with_least
from nncfx.quantization import SIGMOID_STEPS

if TYPE_CHECKING:
    import onnx_ir as ir

_LOGGER = logging.getLogger(__name__)

_IMAGE_NDIM: Final = 4
_IMAGE_AXES: Final = [2, 3]


def use_global_pooling(graph: "ir.Graph") -> None:
    """Replace each mean over a quantized image by a global average pooling."""
    for node in filter(_is_mean_over_image, nodes_of(graph, "ReduceMean")):
        _pool(node, graph)


def leave_out_borders(graph: "ir.Graph") -> None:
    """Exclude padding from averages of windows that reach beyond the image.

    Without padding (`ceil_mode` on an odd size), torch averages only the pixels of the image, but
    ONNX Runtime's integer kernel divides by the whole window unless padding is excluded.
    """
    for node in nodes_of(graph, "AveragePool"):
        if not _flag(node, "ceil_mode"):
            continue
        pads = node.attributes.get_ints("pads", ())
        if not any(pads):
            node.attributes.pop("count_include_pad", None)
        elif _flag(node, "count_include_pad") and _reaches_beyond(node, pads):
            _LOGGER.warning(
                "'%s' averages windows with padding and ceil_mode: ONNX Runtime's integer "
                "kernel divides by the whole window where it reaches beyond the padding, torch "
                "does not. Pass count_include_pad=False, or leave it out with ignored_scopes.",
                node.name,
            )


def pad_in_pools(graph: "ir.Graph") -> None:
    """Let maximum poolings pad by themselves in place of a node that pads with minus infinity.

    No grid has that number, so the node would end integers. Windows that lie outside of the image
    keep it, and those of `ceil_mode`, whose borders follow other rules.
    """
    import onnx_ir as ir

    for node in nodes_of(graph, "MaxPool"):
        pad = input_of(node).producer()
        added = None if pad is None else _infinity_around(pad)
        mode = node.attributes.get_string("auto_pad", "NOTSET")
        is_plain = mode == "NOTSET" and not _flag(node, "ceil_mode")
        if pad is None or added is None or not is_plain or len(node.outputs) > 1:
            continue
        kernel = list(node.attributes["kernel_shape"].as_ints())
        pads = added + np.array(node.attributes.get_ints("pads", [0] * len(added)))
        if np.all(pads < kernel * 2):  # a list of them, for both sides
            node.attributes["pads"] = ir.AttrInt64s("pads", pads.tolist())
            node.replace_input_with(0, input_of(pad))


def _infinity_around(node: "ir.Node") -> npt.NDArray[np.int64] | None:
    """Return how far `node` pads images with minus infinity, as `pads`; None for other nodes."""
    if node.op_type != "Pad" or node.domain or len(node.inputs) != 3:  # noqa: PLR2004 (with a value)
        return None
    pads, value = map(constant_of, node.inputs[1:])
    if pads is None or value is None or value != -np.inf:
        return None
    before_after = pads.reshape(2, -1)
    if pads.min() < 0 or before_after[:, :2].any():  # of examples or channels
        return None
    return before_after[:, 2:].reshape(-1)


def average_padding_in_float(graph: "ir.Graph") -> None:
    """Keep averages that count the zeros around an image from being computed in bytes.

    OpenVINO pads the bytes of the image with 0, which represents zero only if the zero point is 0.
    A maximum keeps scales from moving past the average.
    """
    for node in nodes_of(graph, "AveragePool"):
        pads = node.attributes.get_ints("pads", ())
        if not any(pads) or not _flag(node, "count_include_pad") or _has_zeros_of_0(node):
            continue
        put_before(node, 0, maximum_with_least(input_of(node), node, graph), graph)


def _has_zeros_of_0(node: "ir.Node") -> bool:
    read = input_of(node).producer()
    if read is None or read.op_type != "DequantizeLinear":
        return False
    zero_point = constant_of(read.inputs[2]) if len(read.inputs) > 2 else np.zeros(1)  # noqa: PLR2004 (the optional one)
    return zero_point is not None and not zero_point.any()


def wrap_by_slices(graph: "ir.Graph") -> None:
    """Write circular padding as a concatenation of slices, the only form that OpenVINO reads."""
    for node in nodes_of(graph, "Pad"):
        if node.attributes.get_string("mode") != "wrap":
            continue
        pads = constant_of(node.inputs[1])
        if len(node.inputs) > 3 or pads is None or pads.min() < 0:  # noqa: PLR2004 (axes of its own)
            continue
        value = input_of(node)
        for axis, (before, after) in enumerate(pads.reshape(2, -1).T.tolist()):
            value = _wrapped(value, axis, before, after, node, graph)
        final = value.producer()
        if final is not None and value is not node.inputs[0]:
            graph.remove(final)
            replace_node(node, final, graph)


def _wrapped(
    value: "ir.Value", axis: int, before: int, after: int, pad: "ir.Node", graph: "ir.Graph"
) -> "ir.Value":
    """Return `value` with its last `before` entries prepended and its first `after` appended."""
    last = (-before, np.iinfo(np.int64).max)
    bounds = [last] * bool(before) + [None] + [(0, after)] * bool(after)
    parts: list[ir.Value] = []
    for one in bounds:
        if one is None:
            parts.append(value)
            continue
        numbers = [np.array([number], np.int64) for number in (*one, axis)]
        inputs = [shared_constant(graph, f"index_{each.item()}", each) for each in numbers]
        part = new_node("Slice", [value, *inputs], pad)
        part.outputs[0].type = value.type
        graph.insert_before(pad, part)
        parts.append(part.outputs[0])
    if len(parts) == 1:
        return value
    whole = new_node("Concat", parts, pad, {"axis": axis})
    whole.outputs[0].type = value.type
    graph.insert_before(pad, whole)
    return whole.outputs[0]


def _reaches_beyond(node: "ir.Node", pads: Sequence[int]) -> bool:
    """Return whether a window can reach beyond the image and its padding."""
    shape = input_of(node).shape
    sizes = (None,) * len(pads) if shape is None else shape[2:]
    kernel, strides = (node.attributes[name].as_ints() for name in ("kernel_shape", "strides"))
    around = [sum(pads[axis :: len(kernel)]) for axis in range(len(kernel))]
    return any(
        not isinstance(size, int) or (size + more - window) % stride
        for size, more, window, stride in zip(sizes, around, kernel, strides, strict=False)
    )


def _flag(node: "ir.Node", name: str) -> bool:
    return node.attributes.get_int(name, 0) == 1


def use_matrix_products(graph: "ir.Graph", weights: Iterable[IntegerWeight]) -> None:
    """Replace each convolution of a one-pixel image by a matrix product.

    Integer matrix products can return floats; integer convolutions need a quantizer after them.
    """
    for weight in weights:
        layer = sole_consumer(weight.node.outputs[0])
        if layer is not None and layer.op_type == "Conv" and _is_on_one_pixel(layer):
            _use_matrix_product(layer, weight, graph)


def scale_after_products(graph: "ir.Graph") -> None:
    """Scale the result of a product instead of its two quantized operands.

    Attention is exported with queries and keys scaled before their product, which would then read
    floats.
    """
    for node in nodes_of(graph, "MatMul"):
        scaled = [_scaled(input_of(node, index)) for index in (0, 1)]
        if None in scaled:
            continue
        (left, one), (right, other) = (each for each in scaled if each is not None)
        _scale_result(node, (left, right), one * other, graph)


def _scaled(value: "ir.Value") -> "tuple[ir.Value, np.float32] | None":
    """Return a quantized tensor and the number by which it is multiplied; None for others."""
    node = value.producer()
    if node is None or node.op_type != "Mul" or len(value.uses()) > 1:
        return None
    factor = constant_of(node.inputs[1])
    if factor is None or factor.size != 1 or not is_quantized(input_of(node)):
        return None
    return input_of(node), np.float32(factor.item())


def _scale_result(
    node: "ir.Node", operands: "tuple[ir.Value, ir.Value]", factor: np.float32, graph: "ir.Graph"
) -> None:
    product = new_node("MatMul", operands, node, like=node.outputs[0])
    graph.insert_before(node, product)
    scale = add_constant(graph, f"{node.outputs[0].name}_factor", np.asarray(factor))
    replace_node(node, new_node("Mul", [product.outputs[0], scale], node), graph)


def _is_mean_over_image(node: "ir.Node") -> bool:
    source = input_of(node)
    axes = constant_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is None or source.shape is None or len(source.shape) != _IMAGE_NDIM:
        return False
    on_image = sorted(int(axis) % _IMAGE_NDIM for axis in axes) == _IMAGE_AXES
    return on_image and is_fake_quantize(source.producer())


def _pool(node: "ir.Node", graph: "ir.Graph") -> None:
    source = input_of(node)
    pooling = new_node("GlobalAveragePool", [source], node)
    if node.attributes.get_int("keepdims", 1) == 1:
        replace_node(node, pooling, graph)
        return
    graph.insert_before(node, pooling)
    pooling.outputs[0].type = source.type
    replace_node(node, new_node("Flatten", [pooling.outputs[0]], node, {"axis": 1}), graph)


def _is_on_one_pixel(node: "ir.Node") -> bool:
    source, weight = input_of(node), input_of(node, 1)
    if source.shape is None or weight.shape is None or len(weight.shape) != _IMAGE_NDIM:
        return False
    sizes = [*source.shape[2:], *weight.shape[2:], *node.attributes["pads"].as_ints()]
    one_pixel = sizes == [1, 1, 1, 1, 0, 0, 0, 0]
    return one_pixel and node.attributes["group"].as_int() == 1


def _use_matrix_product(node: "ir.Node", weight: IntegerWeight, graph: "ir.Graph") -> None:
    import onnx_ir as ir

    rows = new_node("Flatten", [input_of(node)], node, {"axis": 1})
    product = new_node("Gemm", [rows.outputs[0], *node.inputs[1:]], node, {"transB": 1})
    axes = add_constant(graph, "image_axes", np.array(_IMAGE_AXES))
    image = new_node("Unsqueeze", [product.outputs[0], axes], node)
    weight.integers = weight.integers.reshape(weight.integers.shape[:2])
    weight.node.outputs[0].shape = ir.Shape(weight.integers.shape)
    graph.insert_before(node, [rows, product])
    for one in (rows, product):
        one.outputs[0].type = node.outputs[0].type
    replace_node(node, image, graph)


def quantize_silu(graph: "ir.Graph") -> None:
    """Round the sigmoid by which a quantized tensor is multiplied to steps of 1/256.

    ONNX Runtime then takes the sigmoid from a table and multiplies integers, instead of two
    conversions to float, an exponential and a product. The result differs by at most half a step
    of its own quantizer, which `integer_arithmetic` takes into account. Readers without a
    quantizer read the product with the exact sigmoid.
    """
    for product in list(graph):
        x = _gated(product)
        if x is None:
            continue
        readers = [one for one in consumers(product.outputs[0]) if _has_bytes(one)]
        if readers:
            _multiply_rounded(x, product, readers, graph)


def _gated(product: "ir.Node") -> "ir.Value | None":
    """Return `x` if `product` is `x * sigmoid(x)`, and `x` is quantized."""
    if product.op_type != "Mul" or product.domain:
        return None
    for index in range(2):
        sigmoid, x = input_of(product, index).producer(), input_of(product, 1 - index)
        if sigmoid is None or sigmoid.op_type != "Sigmoid" or sigmoid.domain:
            continue
        if sigmoid.inputs[0] is x and _has_bytes(x.producer()):
            return x
    return None


def _has_bytes(node: "ir.Node | None") -> bool:
    """Return whether `node` is a quantizer with one scale and at most 8 bits."""
    if node is None or not is_fake_quantize(node):
        return False
    grid = grid_of(node)
    return grid.axis is None and grid.high - grid.low < SIGMOID_STEPS


def _multiply_rounded(
    x: "ir.Value", product: "ir.Node", readers: "Sequence[ir.Node]", graph: "ir.Graph"
) -> None:
    """Let `readers` read `x` times its rounded sigmoid, instead of `product`."""
    sigmoid = new_node("Sigmoid", [x], product, like=x)
    constants = (
        shared_constant(graph, "gate_scale", np.asarray(1 / SIGMOID_STEPS, np.float32)),
        shared_constant(graph, "gate_zero_point", np.asarray(0, np.int32)),
    )
    limits = {"axis": -1, "quant_min": 0, "quant_max": SIGMOID_STEPS - 1}
    inputs = [sigmoid.outputs[0], *constants]
    rounded = new_node(FAKE_QUANTIZE, inputs, product, limits, domain=DOMAIN, like=x)
    gated = new_node("Mul", [x, rounded.outputs[0]], product, like=x)
    graph.insert_before(product, [sigmoid, rounded, gated])
    for reader in readers:
        reader.replace_input_with(0, gated.outputs[0])
