"""A target: ONNX Runtime where nothing but linear layers shall run in integers."""

from typing import Final

from nncfx.targets import Alignment, Descriptor, Hardware, Target

__all__ = ["LINEAR_ONLY"]

_BYTES: Final = Descriptor(inputs=("uint8", "int8"), output="uint8")

LINEAR_ONLY: Final = Target(
    name="onnxruntime-linear",
    runtime="onnxruntime",
    kernels=Hardware(name="onnxruntime-linear", operations={"linear": (_BYTES,)}),
    alignment=Alignment(8),
    opset=21,
    newest_opset=21,
)
