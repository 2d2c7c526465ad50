"""What each target runtime wants of an ONNX file."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nncfx.errors import ArgumentError, did_you_mean

__all__ = ["TARGETS", "Target", "target_named"]


@dataclass(frozen=True)
class Target:
    """A runtime that is to read the file.

    Attributes:
        name: how `export_onnx` calls it.
        opset: the ONNX operator set that it reads without conversion.
        newest_opset: the newest operator set that it reads at all.
    """

    name: str
    opset: int
    newest_opset: int


TARGETS: Final[Mapping[str, Target]] = MappingProxyType(
    {
        "onnxruntime": Target("onnxruntime", opset=20, newest_opset=23),
        "openvino": Target("openvino", opset=20, newest_opset=23),
        "tensorrt": Target("tensorrt", opset=20, newest_opset=22),
    },
)
"""The targets of `export_onnx`, by name."""


def target_named(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        ArgumentError: there is none of that name.

    >>> target_named("onnxruntime").opset
    20
    """
    if name not in TARGETS:
        raise ArgumentError(
            f"There is no export target '{name}'; the targets are {', '.join(sorted(TARGETS))}."
            f"{did_you_mean(name, TARGETS)}",
        )
    return TARGETS[name]
