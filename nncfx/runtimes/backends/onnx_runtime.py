"""ONNX Runtime, on the CPU or through another of its execution providers."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
from typing_extensions import override

from nncfx.errors import MissingExtraError, RuntimeFailure, needing
from nncfx.runtimes.backends.onnx_runtime_provider import (
    CPU_PROVIDER,
    check_started,
    chosen_provider,
)
from nncfx.runtimes.backends.unshare_weights import SHARED_WEIGHTS, unshare_weights
from nncfx.runtimes.processor import EXACT_BYTE_SUMS, byte_products, exact_byte_sums
from nncfx.runtimes.protocol.model_path import first_line, onnx_path
from nncfx.runtimes.protocol.named_inputs import InputSpec, named_arrays
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Outputs, Runtime, Session
from nncfx.tracing import ExampleInputs

_FATAL_ONLY: Final = 4  # errors reach us as exceptions
_TYPES: Final = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int16)": "int16",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


class OnnxRuntime(Runtime):
    """ONNX Runtime; reads ONNX files.

    Settings: `provider`, the execution provider (`"cpu"`, `"cuda"`, `"tensorrt"`, `"openvino"`, or
        ONNX Runtime's own name of any other); `provider.KEY`, an option of that provider; all
        others are entries of ONNX Runtime's session config, which have a dot in their names and
        are ignored if ONNX Runtime does not know them. Among them, `EXACT_BYTE_SUMS` is set on an
        x86 without VNNI unless another value is given. Operations that a provider does not support
        run on the CPU; the setting `session.disable_cpu_ep_fallback` with `"1"` disables that. A
        provider on another device copies inputs and outputs in every call.
    """

    name = "onnxruntime"
    reads_modules = False

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> "OnnxRuntimeSession":
        return OnnxRuntimeSession(onnx_path(source, self.name), options)

    @override
    def version(self) -> str:
        return str(_package().__version__)


class OnnxRuntimeSession(Session):
    """An ONNX file loaded into ONNX Runtime."""

    def __init__(self, path: Path, options: BuildOptions) -> None:
        """Load the file at `path`."""
        package = _package()
        self._folder = tempfile.TemporaryDirectory() if options.profile else None
        settings = package.SessionOptions()
        settings.log_severity_level = _FATAL_ONLY
        settings.intra_op_num_threads, settings.inter_op_num_threads = options.threads or 0, 1
        # Idle workers of a session would otherwise spin while another session is timed.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
        provider = chosen_provider(options, package.get_available_providers())
        asked = dict(provider.session_entries)
        for key, value in (exact_byte_sums() | asked).items():
            settings.add_session_config_entry(key, value)
        if provider.name == CPU_PROVIDER:
            set_to = asked.get(EXACT_BYTE_SUMS[0])
            self.byte_products = byte_products() if set_to is None else f"as asked: {set_to}"
        if self._folder is not None:
            settings.enable_profiling = True
            settings.profile_file_prefix = str(Path(self._folder.name) / "profile")

        def load(file: Path) -> Any:  # noqa: ANN401 (the package is untyped)
            return package.InferenceSession(
                os.fspath(file),
                settings,
                providers=provider.with_fallback(),
                enable_fallback=False,  # otherwise the CPU silently replaces a failing provider
            )

        try:
            self._session = _loaded(path, load)
        except MissingExtraError:
            self.close()
            raise
        except Exception as error:
            self.close()
            raise RuntimeFailure(
                f"ONNX Runtime {package.__version__} refuses '{path}': {first_line(error)}"
            ) from error
        check_started(provider, self._session.get_providers())
        self.threads = options.threads
        self.in_one_thread = provider.name == CPU_PROVIDER and self.threads == 1
        self.inputs = tuple(_spec(node) for node in self._session.get_inputs())

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        feeds = named_arrays(inputs, self.inputs)
        session = self._session
        if session is None:
            raise RuntimeFailure("The session is closed; build another one.")
        raw_run = session.run

        def call() -> object:
            try:
                return raw_run(None, feeds)
            except Exception as error:
                raise RuntimeFailure(f"ONNX Runtime failed: {first_line(error)}") from error

        return call

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        return tuple(np.asarray(output) for output in outputs)

    @override
    def close(self) -> None:
        self._session = None
        if self._folder is not None:
            self._folder.cleanup()

    def finish_profile(self) -> str:
        """Stop profiling and return ONNX Runtime's record, as its JSON text.

        Raises:
            RuntimeFailure: the session was not built with `profile=True`.
        """
        if self._folder is None or self._session is None:
            raise RuntimeFailure(
                "The session keeps no profile; build it with BuildOptions(profile=True)."
            )
        # names in a damaged file can be any bytes
        return Path(self._session.end_profiling()).read_text(encoding="utf-8", errors="replace")


def _loaded(path: Path, load: Callable[[Path], Any]) -> Any:  # noqa: ANN401 (untyped)
    """Return a session of the file, or of a copy if ONNX Runtime rejects shared weights."""
    try:
        return load(path)
    except Exception as error:
        if SHARED_WEIGHTS not in str(error):
            raise
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        unshare_weights(path, copy)
        return load(copy)


def _package() -> ModuleType:
    with needing("onnxruntime", "onnxruntime", "running a model in ONNX Runtime"):
        import onnxruntime
    return onnxruntime  # type: ignore[no-any-return]  # the package has no types


def _spec(node: Any) -> InputSpec:  # noqa: ANN401 (the package is untyped)
    if node.type not in _TYPES:
        raise RuntimeFailure(
            f"Input '{node.name}' is a {node.type}, which cannot be given as an array; "
            f"inputs may be {', '.join(_TYPES)}."
        )
    shape = tuple(size if isinstance(size, int) else None for size in node.shape)
    return InputSpec(node.name, shape, _TYPES[node.type])
