"""OpenVINO on the CPU."""

import functools
import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from typing_extensions import override

from nncfx.errors import RuntimeFailure, needing
from nncfx.runtimes.protocol.engine_cache import content_digest, kept_engine, processor_digest
from nncfx.runtimes.protocol.model_path import onnx_path
from nncfx.runtimes.protocol.named_inputs import InputSpec, named_arrays
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Outputs, Runtime, Session
from nncfx.targets import TARGET_KEY, TARGETS
from nncfx.tracing import ExampleInputs

_LOGGER = logging.getLogger(__name__)
# By default OpenVINO computes in bfloat16 if the processor can: 2x as fast as float32, and
# 4 % off on MobileNetV2. Enable it in the settings if wanted.
_DEFAULTS: Final = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
_LINES: Final = 4
_PLACES: Final = ("Exception from ", "Check '", "FrontEnd API failed")
"""Starts of lines that refer to OpenVINO's sources."""


class OpenVinoRuntime(Runtime):
    """OpenVINO, CPU device, tuned for latency; reads ONNX files."""

    name = "openvino"
    reads_modules = False

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> "OpenVinoSession":
        return OpenVinoSession(onnx_path(source, self.name), options)

    @override
    def version(self) -> str:
        return str(_package().get_version())


class OpenVinoSession(Session):
    """An ONNX file compiled by OpenVINO."""

    def __init__(self, path: Path, options: BuildOptions) -> None:
        """Compile the file at `path`."""
        package = _package()
        settings: dict[str, Any] = _DEFAULTS | dict(options.settings)
        if options.threads is not None:
            settings["INFERENCE_NUM_THREADS"] = options.threads
        if options.profile:
            settings["PERF_COUNT"] = True
        try:
            self._compiled = _compiled(package, path, settings, options.cache)
        except RuntimeFailure:
            raise
        except Exception as error:
            raise RuntimeFailure(
                f"OpenVINO {package.get_version()} refuses '{path}': {_reason(error)}"
            ) from error
        self._outputs = tuple(self._compiled.outputs)
        self.inputs = tuple(_spec(port) for port in self._compiled.inputs)
        self.threads = options.threads
        self.in_one_thread = options.threads == 1

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        feeds = named_arrays(inputs, self.inputs)
        if self._compiled is None:
            raise RuntimeFailure("The session is closed; build another one.")
        request = self._compiled.create_infer_request()
        tensor = _package().Tensor
        for name, array in feeds.items():
            request.set_tensor(name, tensor(array, shared_memory=True))
        return functools.partial(_infer, request, feeds)

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        # The arrays are the request's own memory, which the next call overwrites.
        return tuple(np.array(outputs[port]) for port in self._outputs)

    @override
    def close(self) -> None:
        self._compiled = None
        self._outputs = ()


def _infer(request: Any, _feeds: object) -> object:  # noqa: ANN401 (the package has no types)
    """Return the outputs; `_feeds` keeps the memory alive that the request reads."""
    try:
        return request.infer(share_outputs=True)
    except Exception as error:
        raise RuntimeFailure(f"OpenVINO failed: {_reason(error)}") from error


def _compiled(
    package: Any,  # noqa: ANN401 (the package has no types)
    path: Path,
    settings: dict[str, Any],
    cache: Path | None,
) -> Any:  # noqa: ANN401 (the package has no types)
    """Return the compiled model, read from `cache` if it is there."""
    core = package.Core()
    if cache is None:
        model = core.read_model(str(path))
        _warn_other_target(_other_target(model), path)
        return core.compile_model(model, "CPU", settings)
    facts = {
        "runtime": OpenVinoRuntime.name,
        "version": str(package.get_version()),
        "model": content_digest(path),
        "processor": processor_digest(),
        "settings": repr(sorted(settings.items())),
        "holds": "the other target, the compiled model",
    }

    def build() -> bytes:
        model = core.read_model(str(path))
        compiled = core.compile_model(model, "CPU", settings).export_model()
        return f"{_other_target(model)}\n".encode() + bytes(compiled.getvalue())

    engine, _ = kept_engine(cache, facts, build)
    other, _, compiled = engine.partition(b"\n")
    _warn_other_target(other.decode(), path)
    return core.import_model(io.BytesIO(compiled), "CPU", settings)


def _other_target(model: Any) -> str:  # noqa: ANN401 (the package has no types)
    """Return the other runtime that a file with integers was written for; "" for none."""
    place = ["framework", TARGET_KEY]
    name = str(model.get_rt_info(place).value) if model.has_rt_info(place) else ""
    is_other = name in TARGETS and TARGETS[name].runtime != OpenVinoRuntime.name
    has_integers = any(one.get_type_name() == "FakeQuantize" for one in model.get_ops())
    return name if is_other and has_integers else ""


def _warn_other_target(name: str, path: Path) -> None:
    if name:
        _LOGGER.warning(
            "'%s' is written for '%s'. OpenVINO computes some quantized networks wrongly unless "
            "the file works around it: export the model with target='openvino'.",
            path,
            name,
        )


def _reason(error: BaseException) -> str:
    """Return the first lines of OpenVINO's explanation of an error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith(_PLACES)] or lines[-1:]
    return "; ".join(said[:_LINES])


def _package() -> Any:  # noqa: ANN401 (the package has no types)
    with needing("openvino", "openvino", "running a model in OpenVINO"):
        import openvino
    return openvino


def _spec(port: Any) -> InputSpec:  # noqa: ANN401 (the package has no types)
    shape = tuple(
        None if size.is_dynamic else int(size.get_length()) for size in port.partial_shape
    )
    return InputSpec(port.get_any_name(), shape, np.dtype(port.element_type.to_dtype()).name)
