"""The result of an export."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override


@dataclass(frozen=True, kw_only=True)
class ExportResult(os.PathLike[str]):
    """The file that `export_onnx` wrote; usable wherever a path is expected.

    Attributes:
        path: the ONNX file.
        target: the runtime for which it was written.
        opset: its ONNX operator set.
        inputs: names of the graph's inputs, in order.
        outputs: names of the graph's outputs, in order.
        modules: maps the name of each node and value to the dotted path of the module that
            computes it (`"layer1.0.conv1"`); `""` if the model's own forward computes it.
        size_bytes: bytes on disk, including external weights.
    """

    path: Path
    target: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    modules: Mapping[str, str] = field(repr=False)
    size_bytes: int

    @override
    def __fspath__(self) -> str:
        return str(self.path)
