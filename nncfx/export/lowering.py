"""Run the passes of the export, and tell from a file which of them changed it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nncfx.export.extension_passes import with_added
from nncfx.export.ir.export_pass import Draft, run_passes
from nncfx.export.ir.pass_record import passes_of_nodes
from nncfx.export.pipeline import PASSES
from nncfx.targets import TARGET_KEY, Target

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["explain", "lower"]


def lower(model: "ir.Model", target: Target) -> None:
    """Change `model`, in place, into what `target` reads and runs in integers.

    Weights become stored integers behind a `DequantizeLinear`, activations a pair of
    `QuantizeLinear` and `DequantizeLinear`, and biases int32 where the target wants that. Of a
    model without quantizers only its floats are looked at. The metadata name the target.

    Raises:
        ExportError: a quantizer that cannot be written: its scale is no constant, its integers
            need a type that the operator set of the model has not, or it quantizes other floats
            than float32.
    """
    run_passes(Draft(model, target), with_added(PASSES))
    model.metadata_props[TARGET_KEY] = target.name


def explain(path: str | os.PathLike[str]) -> Mapping[str, tuple[str, ...]]:
    """Return which passes made or changed each node of a file from `export_onnx`.

    Nodes that stand as torch exported them are absent.

    Returns:
        `{node: names of passes, in their order}`; `PASSES` has their reasons.

    Raises:
        ExportError: the file is not an ONNX model.
        MissingExtraError: onnx is not installed.
    """
    return dict(passes_of_nodes(path))
