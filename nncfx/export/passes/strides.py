"""Rewrite strided convolutions into forms that runtimes compute fast in integers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.graph_edits import consumers, input_of, new_node, put_before, sole_consumer
from nncfx.export.ir.integer_weights import IntegerWeight
from nncfx.export.passes.fusion import quantizer_like

if TYPE_CHECKING:
    import onnx_ir as ir

_FEW_CHANNELS: Final = 4
_BLOCK: Final = 2


def use_space_to_depth_stem(graph: "ir.Graph", weights: Iterable[IntegerWeight]) -> None:
    """Replace stride-2 convolutions of an input image by stride-1 convolutions of its blocks.

    Blocks of 2 x 2 pixels become channels (`SpaceToDepth`), and the kernel is rearranged and
    padded with zeros, which gives the same sums. With three channels ONNX Runtime's integer
    convolution copies more than it computes; with twelve, a stem takes half of the time.
    This applies if the input has an even size and is quantized for that convolution alone.
    """
    import onnx_ir as ir

    for weight in weights:
        layer = sole_consumer(weight.node.outputs[0])
        if layer is None or layer.op_type != "Conv" or not _is_stem(layer, weight):
            continue
        quantizer = input_of(layer).producer()
        image = None if quantizer is None else input_of(quantizer)
        image_size = None if image is None else _even_size(image)
        if quantizer is None or image is None or image_size is None:
            continue
        pad = layer.attributes["pads"].as_ints()[0]
        size = image_size // _BLOCK
        outputs = (image_size + 2 * pad - weight.integers.shape[2]) // 2 + 1
        weight.integers = blocks_as_channels(weight.integers, pad)
        kernel = weight.integers.shape[2]
        before = -(-pad // 2)
        after = outputs - 1 + kernel - size - before
        layer.attributes["kernel_shape"] = ir.AttrInt64s("kernel_shape", [kernel, kernel])
        layer.attributes["strides"] = ir.AttrInt64s("strides", [1, 1])
        layer.attributes["pads"] = ir.AttrInt64s("pads", [before, before, after, after])
        weight.node.outputs[0].shape = ir.Shape(weight.integers.shape)
        blocks = new_node("SpaceToDepth", [image], None, {"blocksize": _BLOCK})
        blocks.outputs[0].type = image.type
        put_before(quantizer, 0, blocks, graph)
        quantizer.outputs[0].shape = None


def blocks_as_channels(kernel: npt.NDArray[np.int64], pad: int) -> npt.NDArray[np.int64]:
    """Return the kernel on blocks of 2 x 2 pixels that is equivalent to `kernel` with stride 2.

    Args:
        kernel: `o x i x k x k`.
        pad: pixels of zeros around the image.

    Returns:
        `o x 4i x m x m`; channel `(2 y + x) i + c` reads pixel (y, x) of a block, as
        `SpaceToDepth` orders them.
    """
    outputs, inputs, size, _ = kernel.shape
    start = pad % 2
    blocks = (size + start + 1) // 2
    wide = np.zeros((outputs, inputs, 2 * blocks, 2 * blocks), kernel.dtype)
    wide[:, :, start : start + size, start : start + size] = kernel
    split = wide.reshape(outputs, inputs, blocks, 2, blocks, 2).transpose(0, 3, 5, 1, 2, 4)
    return split.reshape(outputs, 4 * inputs, blocks, blocks)


def _is_stem(layer: "ir.Node", weight: IntegerWeight) -> bool:
    """Return whether `layer` is a dense stride-2 convolution of few channels."""
    if weight.integers.ndim != 4 or weight.grid.zero_point.any():  # noqa: PLR2004 (o, i, k, k)
        return False
    inputs, *kernel = weight.integers.shape[1:]
    pads = layer.attributes["pads"].as_ints()
    return (
        inputs <= _FEW_CHANNELS
        and layer.attributes["group"].as_int() == 1
        and list(layer.attributes["strides"].as_ints()) == [_BLOCK, _BLOCK]
        and list(layer.attributes["dilations"].as_ints()) == [1, 1]
        and len({*kernel}) == len({*pads}) == 1
        and is_fake_quantize(input_of(layer).producer())
        and len(consumers(input_of(layer))) == 1
    )


def _even_size(image: "ir.Value") -> int | None:
    """Return the size of `image` if it is an input, square and of even size; None otherwise."""
    if not image.is_graph_input() or image.shape is None:
        return None
    height, width = image.shape[2], image.shape[3]
    return height if isinstance(height, int) and height == width and height % 2 == 0 else None


def subsample_pixels(graph: "ir.Graph") -> None:
    """Subsample each quantized tensor whose readers all read every n-th pixel, by a pooling.

    The pooling has a window of one pixel, so it computes nothing, and takes over the stride of the
    convolutions. If all readers of a tensor are 1 x 1 convolutions with the same stride, OpenVINO
    itself moves the stride before the tensor. With quantizers, its pooling lies between the
    integers and their scale, so it computes the convolutions in float, including their weights:
    six convolutions of ResNet-50, an eighth of its time.
    """
    for node in [one for one in graph if is_fake_quantize(one)]:
        readers = consumers(node.outputs[0])
        strides = {_skipping_strides(one) for one in readers}
        if len(strides) == 1 and (stride := strides.pop()) is not None:
            _subsample(node, readers, stride, graph)


def _skipping_strides(node: "ir.Node") -> tuple[int, ...] | None:
    """Return the strides of a 1 x 1 convolution that skips pixels; None for others."""
    if node.op_type != "Conv" or node.domain:
        return None
    kernel = input_of(node, 1).shape
    strides = tuple(node.attributes["strides"].as_ints())
    padded = any(node.attributes["pads"].as_ints())
    if kernel is None or padded or any(size != 1 for size in kernel[2:]) or max(strides) == 1:
        return None
    return strides


def _subsample(
    node: "ir.Node", readers: "list[ir.Node]", strides: tuple[int, ...], graph: "ir.Graph"
) -> None:
    import onnx_ir as ir

    quantized = node.outputs[0]
    shape = {"kernel_shape": [1] * len(strides), "strides": list(strides)}
    pooling = new_node("MaxPool", [quantized], readers[0], shape)
    pooling.outputs[0].type = quantized.type
    again = quantizer_like(node, pooling.outputs[0])
    graph.insert_after(node, [pooling, again])
    for reader in readers:
        reader.replace_input_with(0, again.outputs[0])
        reader.attributes["strides"] = ir.AttrInt64s("strides", [1] * len(strides))
