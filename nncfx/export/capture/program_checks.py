"""Check that a captured program matches the model and can be written to a file."""

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch import nn

from nncfx.errors import ExportError
from nncfx.quantization import Quantizer

_LOGGER = logging.getLogger(__name__)
_POOLINGS: Final = frozenset({"aten.avg_pool2d.default", "aten.avg_pool3d.default"})
_DIVISOR: Final = 6
_SMOOTH: Final = ("aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa")
_ALIGN_CORNERS: Final = 2

Shapes = Mapping[str, Sequence[tuple[int, ...]]]
"""Maps the name of a quantizer's module to the shapes of its inputs, in order."""


def check_captured(program: torch.export.ExportedProgram, shapes: Shapes) -> None:
    """Refuse a program that differs from the model or cannot be written; warn of lost state.

    Args:
        program: The model's program, exported from inputs like those of the run.
        shapes: The shapes that its quantizers read in the run.

    Raises:
        ExportError: the program is refused; the message gives the reason.
    """
    _check_unsupported_arguments(program)
    _check_quantizer_inputs(program, shapes)
    _warn_unexported_state(program)


@contextlib.contextmanager
def quantizer_inputs(model: nn.Module) -> Iterator[Shapes]:
    """Yield a mapping that collects the shapes that the quantizers of `model` read in the block.

    Quantizers to float8 or by groups are left out, because they call other operations.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}

    def note(name: str, _: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        shapes.setdefault(name, []).append(tuple(args[0].shape))

    with contextlib.ExitStack() as hooks:
        for name, one in model.named_modules():
            if isinstance(one, Quantizer) and one.spec.is_integer and one.spec.group is None:
                hooks.enter_context(one.register_forward_pre_hook(partial(note, name)))
        yield shapes


def _check_quantizer_inputs(program: torch.export.ExportedProgram, shapes: Shapes) -> None:
    """Refuse a program in which a quantizer reads a tensor of another shape than in the model.

    A forward can check whether it is being exported and then call other operations: the hook at
    the n-th call of a function would meet another call, and the file would compute something else.
    Quantizers with fewer or more calls in the program are not compared, because the program omits
    calls that no output needs.

    Args:
        program: The model's program, exported from inputs like those of the run.
        shapes: The shapes that its quantizers read in the run.

    Raises:
        ExportError: the message names the quantizer and both shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in program.graph.nodes:
        if "fake_quantize" not in str(node.target):
            continue
        if module := _module_of(node):
            found.setdefault(module, []).append(node.args[0].meta["val"].shape)
    for name, expected in shapes.items():
        read = found.get(name, [])
        if len(read) != len(expected):
            continue
        for here, there in zip(expected, read, strict=True):
            if not _is_like(here, there):
                raise ExportError(
                    "While it is exported the model takes another path than when it was traced: "
                    f"the quantizer '{name.partition('.quantization.')[2] or name}' reads a "
                    f"tensor of shape {tuple(there)} instead of {here}, and the file would "
                    "compute something else. Let its forward call the same operations on floats "
                    "whether it is exported or not (torch.compiler.is_exporting, and checks for "
                    "fake tensors, tell which), or leave that scope out with ignored_scopes."
                )


def _is_like(shape: Sequence[int], traced: Sequence[Any]) -> bool:
    """Return whether two shapes agree in all but symbolic sizes."""
    return len(shape) == len(traced) and all(
        not isinstance(there, int) or here == there
        for here, there in zip(shape, traced, strict=True)
    )


def _check_unsupported_arguments(program: torch.export.ExportedProgram) -> None:
    """Refuse a program with arguments that torch's exporter silently drops.

    Raises:
        ExportError: an average pooling has `divisor_override`, which ONNX lacks, or an antialiased
            resize aligns the corners, which torch computes differently from ONNX.

    Source: torch 2.13, `torch.onnx`: `aten_avg_pool2d` and `aten_avg_pool3d` ignore the divisor;
    and `UpSampleKernel.cpp`: antialiasing applies the step of aligned corners to pixel centers.
    """
    for node in program.graph.nodes:
        name, place = str(node.target), _module_of(node) or node.name
        if name in _POOLINGS:
            divisor = _given(node, _DIVISOR, "divisor_override")
            if divisor is not None:
                raise ExportError(
                    f"The average pooling '{place}' has divisor_override={divisor}, for "
                    "which ONNX has no form: torch's exporter leaves it out, and the file would "
                    "compute something else. Leave it out, and multiply the result by the number "
                    "of pixels in the window over the divisor."
                )
        elif name.startswith(_SMOOTH) and _given(node, _ALIGN_CORNERS, "align_corners"):
            raise ExportError(
                f"The resize '{place}' has antialias=True and align_corners=True, which "
                "torch computes as no ONNX operator does: the file would compute something else. "
                "Use align_corners=False."
            )


def _given(node: torch.fx.Node, index: int, name: str) -> object:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name)


def _module_of(node: torch.fx.Node) -> str:
    """Return the dotted name of the module that makes a call; "" for the model itself."""
    modules = list((node.meta.get("nn_module_stack") or {}).values())
    return modules[-1][0] if modules else ""


def _warn_unexported_state(program: torch.export.ExportedProgram) -> None:
    """Warn of buffers that the forward of `program` changes.

    A file has no state: each run starts with the values that the buffers had at export.
    """
    changed = sorted(program.graph_signature.buffers_to_mutate.values())
    if changed:
        _LOGGER.warning(
            "The forward changes %s, and a file keeps no state: each of its runs begins with the "
            "values that the model has now. Let the forward take and return them where that "
            "matters.",
            ", ".join(f"'{one}'" for one in changed),
        )
