"""Check that the quantizers of an exported program read what they read in the model."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from nncfx.errors import ExportError
from nncfx.quantization import Quantizer

__all__ = ["Shapes", "check_quantizer_inputs", "quantizer_inputs"]

Shapes = Mapping[str, Sequence[tuple[int, ...]]]
"""Name of a quantizer's module to the shapes of what it has read, in order."""


@contextlib.contextmanager
def quantizer_inputs(model: nn.Module) -> Iterator[Shapes]:
    """Return a mapping that fills, while it lasts, with what the quantizers of `model` read.

    Those that round to float8, or by groups, are left out: they call other operations.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}
    handles = [
        one.register_forward_pre_hook(
            lambda _, args, name=name: shapes.setdefault(name, []).append(tuple(args[0].shape)),
        )
        for name, one in model.named_modules()
        if isinstance(one, Quantizer) and one.spec.is_integer and one.spec.group is None
    ]
    try:
        yield shapes
    finally:
        for handle in handles:
            handle.remove()


def check_quantizer_inputs(program: torch.export.ExportedProgram, shapes: Shapes) -> None:
    """Refuse a program in which a quantizer reads a tensor of another shape than in the model.

    A forward may ask whether it is being exported, and call other operations then: hooks at the
    n-th call of a function would stand at another call, and the file would compute something else.
    Quantizers of which the program holds fewer or more calls are not compared: what no output
    needs is left out of it.

    Args:
        program: Of the model, exported from inputs like those it was run on.
        shapes: What its quantizers read in that run.

    Raises:
        ExportError: the message names the quantizer and both shapes.
    """
    found: dict[str, list[Any]] = {}
    for node in program.graph.nodes:
        if "fake_quantize" not in str(node.target):
            continue
        modules = list((node.meta.get("nn_module_stack") or {}).values())
        if modules:
            found.setdefault(modules[-1][0], []).append(node.args[0].meta["val"].shape)
    for name, expected in shapes.items():
        read = found.get(name, [])
        if len(read) != len(expected):
            continue
        for here, there in zip(expected, read, strict=True):
            if not _is_like(here, there):
                raise ExportError(
                    f"While it is exported the model takes another path than when it was traced: "
                    f"the quantizer '{name.partition('.quantization.')[2] or name}' reads a "
                    f"tensor of shape {tuple(there)} instead of {here}, and the file would "
                    "compute something else. Let its forward call the same operations on floats "
                    "whether it is exported or not (torch.compiler.is_exporting, and checks for "
                    "fake tensors, tell it), or leave that scope out by ignored_scopes.",
                )


def _is_like(shape: Sequence[int], traced: Sequence[Any]) -> bool:
    """Return whether two shapes agree in all but symbolic extents."""
    return len(shape) == len(traced) and all(
        not isinstance(there, int) or here == there
        for here, there in zip(shape, traced, strict=True)
    )
