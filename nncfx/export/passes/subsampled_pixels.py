"""Leave out, before a convolution of single pixels, the pixels that its stride skips.

OpenVINO moves the stride of such convolutions up to what they read, if all that read it have the
same. Among quantizers it does so with a pooling between a tensor's integers and their scale, and
then computes the convolutions in float, weights included: six of ResNet-50's, an eighth of its
time. Where the pixels are left out already there is nothing to move.
"""

from typing import TYPE_CHECKING

from nncfx.export.ir.fake_quantize import is_fake_quantize
from nncfx.export.ir.graph_edits import consumers, input_of
from nncfx.export.passes.fusion import quantizer_like

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["subsample_pixels"]


def subsample_pixels(graph: "ir.Graph") -> None:
    """Pool each quantized tensor of which all readers take every n-th pixel.

    The pooling has a window of one pixel, so that it computes nothing, and the stride of the
    convolutions, which lose theirs.
    """
    for node in [one for one in graph if is_fake_quantize(one)]:
        readers = consumers(node.outputs[0])
        strides = {_skipping_strides(one) for one in readers}
        if len(strides) == 1 and (stride := strides.pop()) is not None:
            _subsample(node, readers, stride, graph)


def _skipping_strides(node: "ir.Node") -> tuple[int, ...] | None:
    """Return the strides of a convolution of single pixels that skips some; None for others."""
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
    pooling = ir.node(
        "MaxPool",
        [quantized],
        {"kernel_shape": [1] * len(strides), "strides": list(strides)},
        metadata_props=dict(readers[0].metadata_props),
    )
    pooling.outputs[0].type = quantized.type
    again = quantizer_like(node, pooling.outputs[0])
    graph.insert_after(node, [pooling, again])
    for reader in readers:
        reader.replace_input_with(0, again.outputs[0])
        reader.attributes["strides"] = ir.AttrInt64s("strides", [1] * len(strides))
