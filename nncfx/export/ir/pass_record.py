"""Record in a file which export passes created or changed its nodes."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from nncfx.errors import ExportError
from nncfx.export.ir.base62 import from_base62, to_base62
from nncfx.export.ir.export_pass import PASSES_KEY
from nncfx.export.ir.onnx_file import read_onnx

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_NONE: Final = ""
"""The first list of passes, for nodes that are unchanged since torch exported them."""


def record_passes(model: "ir.Model") -> None:
    """Write the passes of each node into the metadata of `model`.

    The record has a line for each distinct list of passes and a last line with the line number of
    each node in base 62, one byte per node for up to 62 lists.
    """
    noted = [node.metadata_props.get(PASSES_KEY, _NONE) for node in model.graph]
    lists = list(dict.fromkeys([_NONE, *noted]))
    width = len(to_base62(len(lists) - 1))
    numbers = (to_base62(lists.index(one)).rjust(width, "0") for one in noted)
    model.metadata_props[PASSES_KEY] = "\n".join([*lists, "".join(numbers)])


def is_recorded(model: "onnx.ModelProto") -> bool:
    """Return whether `model` carries a record, as every file of `export_onnx` does."""
    return any(entry.key == PASSES_KEY for entry in model.metadata_props)


def explain(path: str | os.PathLike[str]) -> Mapping[str, tuple[str, ...]]:
    """Return which passes created or changed each node of a file from `export_onnx`.

    Nodes that are unchanged since torch exported them are absent.

    Returns:
        `{node: names of passes, in order}`; `PASSES` has their reasons.

    Raises:
        ExportError: the file is not an ONNX model, or its record is damaged.
        MissingExtraError: onnx is not installed.
    """
    model = read_onnx(path)
    record = next((one.value for one in model.metadata_props if one.key == PASSES_KEY), None)
    if record is None:  # older files hold the passes in each node
        noted = [
            next((one.value for one in node.metadata_props if one.key == PASSES_KEY), _NONE)
            for node in model.graph.node
        ]
    else:
        *lists, numbers = record.split("\n")
        width = len(to_base62(max(0, len(lists) - 1)))
        starts = range(0, len(numbers), width)
        try:
            noted = [lists[from_base62(numbers[start : start + width])] for start in starts]
        except (ValueError, IndexError) as error:
            raise ExportError(
                f"The record of passes in '{path}' is damaged. Export the model again."
            ) from error
    pairs = zip(model.graph.node, noted, strict=False)
    return {str(node.name): tuple(names.split(",")) for node, names in pairs if names}
