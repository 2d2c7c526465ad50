"""Refuse what torch's exporter would write without an argument, and so compute otherwise."""

from typing import Final

import torch

from nncfx.errors import ExportError

__all__ = ["check_unsupported_arguments"]

_POOLINGS: Final = frozenset({"aten.avg_pool2d.default", "aten.avg_pool3d.default"})
_DIVISOR: Final = 6


def check_unsupported_arguments(program: torch.export.ExportedProgram) -> None:
    """Refuse a program of which torch's exporter leaves out a part without a word.

    Raises:
        ExportError: an average pooling has a divisor of its own, which ONNX's has not.

    Source: torch 2.13, `torch.onnx`: `aten_avg_pool2d` and `aten_avg_pool3d` do not use it.
    """
    for node in program.graph.nodes:
        if str(node.target) not in _POOLINGS:
            continue
        given = node.kwargs.get("divisor_override")
        divisor = node.args[_DIVISOR] if len(node.args) > _DIVISOR else given
        if divisor is not None:
            modules = list((node.meta.get("nn_module_stack") or {}).values())
            place = modules[-1][0] if modules else ""
            raise ExportError(
                f"The average pooling '{place or node.name}' has divisor_override={divisor}, for "
                "which ONNX has no form: torch's exporter leaves it out, and the file would "
                "compute something else. Leave it out, and multiply the result by the number of "
                "pixels in the window over the divisor.",
            )
