"""The runtimes, by name."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nncfx.errors import require_known
from nncfx.runtimes.backends.aot_inductor import AotInductor
from nncfx.runtimes.backends.onnx_runtime import OnnxRuntime
from nncfx.runtimes.backends.openvino_runtime import OpenVinoRuntime
from nncfx.runtimes.backends.tensorrt_runtime import TensorRt
from nncfx.runtimes.backends.torch_compile import TorchCompile
from nncfx.runtimes.backends.torch_eager import TorchEager
from nncfx.runtimes.protocol.runtime import Runtime

RUNTIMES: Final[Mapping[str, Runtime]] = MappingProxyType(
    {
        runtime.name: runtime
        for runtime in (
            OnnxRuntime(),
            OpenVinoRuntime(),
            TensorRt("tensorrt", "tensorrt"),
            TensorRt("tensorrt_rtx", "tensorrt_rtx_bindings"),
            TorchEager(),
            TorchCompile(),
            AotInductor(),
        )
    }
)
"""Every runtime that nncfx knows, installed or not."""


def runtime_named(name: str | Runtime) -> Runtime:
    """Return the runtime called `name`; a `Runtime`, such as your own, is returned unchanged.

    Raises:
        ArgumentError: there is no runtime of that name.

    >>> runtime_named("torch").reads_modules
    True
    """
    if isinstance(name, Runtime):
        return name
    require_known("runtime", name, sorted(RUNTIMES))
    return RUNTIMES[name]
