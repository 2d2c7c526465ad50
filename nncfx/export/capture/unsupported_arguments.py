"""Refuse what torch's exporter would write without an argument, and so compute otherwise."""

from typing import Final

import torch

from nncfx.errors import ExportError

__all__ = ["check_unsupported_arguments"]

_POOLINGS: Final = frozenset({"aten.avg_pool2d.default", "aten.avg_pool3d.default"})
_DIVISOR: Final = 6
_SMOOTH: Final = ("aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa")
_ALIGN_CORNERS: Final = 2


def check_unsupported_arguments(program: torch.export.ExportedProgram) -> None:
    """Refuse a program of which torch's exporter leaves out a part without a word.

    Raises:
        ExportError: an average pooling has a divisor of its own, which ONNX's has not, or a
            smoothed resize aligns the corners, which torch does in a way of its own.

    Source: torch 2.13, `torch.onnx`: `aten_avg_pool2d` and `aten_avg_pool3d` do not use it; and
    `UpSampleKernel.cpp`: smoothing takes the step of aligned corners from the middles of pixels.
    """
    for node in program.graph.nodes:
        name = str(node.target)
        if name in _POOLINGS:
            divisor = _given(node, _DIVISOR, "divisor_override")
            if divisor is not None:
                raise ExportError(
                    f"The average pooling '{_place(node)}' has divisor_override={divisor}, for "
                    "which ONNX has no form: torch's exporter leaves it out, and the file would "
                    "compute something else. Leave it out, and multiply the result by the number "
                    "of pixels in the window over the divisor.",
                )
        elif name.startswith(_SMOOTH) and _given(node, _ALIGN_CORNERS, "align_corners"):
            raise ExportError(
                f"The resize '{_place(node)}' has antialias=True and align_corners=True, which "
                "torch computes as no ONNX operator does: the file would compute something else. "
                "Use align_corners=False.",
            )


def _given(node: torch.fx.Node, index: int, name: str) -> object:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _place(node: torch.fx.Node) -> str:
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return (modules[-1][0] if modules else "") or node.name
