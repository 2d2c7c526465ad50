"""TensorRT and TensorRT for RTX: engines built from ONNX files, run on a GPU."""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from typing_extensions import override

from nncfx.errors import RuntimeFailure, did_you_mean, needing
from nncfx.runtimes.backends.tensorrt_network import (
    QuantizedLayers,
    check_quantized,
    quantized_layers,
)
from nncfx.runtimes.backends.tensorrt_settings import TensorRtSettings, tensorrt_settings
from nncfx.runtimes.protocol.engine_cache import content_digest, kept_engine
from nncfx.runtimes.protocol.model_path import onnx_path
from nncfx.runtimes.protocol.named_inputs import InputSpec, named_arrays
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Outputs, Runtime, Session
from nncfx.storage.formats.whole_file import write_whole
from nncfx.tracing import ExampleInputs

_TYPES: Final = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """Facts about an engine, like the output of `trtexec`.

    Attributes:
        version: of TensorRT.
        compute_capability: of the GPUs that the engine is for, such as `"SM89"`.
        layers: number of layers of the parsed network.
        quantized: which of its convolutions and matrix products compute in INT8.
        parse_seconds: to read the ONNX file.
        build_seconds: to build the engine, or to read it from the cache.
        size_bytes: of the serialized engine.
        was_kept: True if the engine came from the cache.
    """

    version: str
    compute_capability: str
    layers: int
    quantized: QuantizedLayers
    parse_seconds: float
    build_seconds: float
    size_bytes: int
    was_kept: bool


class TensorRt(Runtime):
    """TensorRT, or TensorRT for RTX; reads ONNX files and builds strongly typed engines.

    The types in the file are those of the engine: export `model.half()` or `model.bfloat16()` for
    16 bits, Q/DQ pairs for INT8. Before building, the parsed network is checked
    (`check_quantized`). TensorRT for RTX builds without a GPU for one compute capability given in
    the settings; TensorRT needs the GPU. Running needs a GPU in both cases.

    Settings, named as in `trtexec`: `minShapes`, `optShapes`, `maxShapes`
    (`"x:1x3x224x224,y:1x10"`; by default an open axis 0 ranges from 1 to 32, tuned for 8),
    `computeCapability` (`"8.9"`), `builderOptimizationLevel` (0 to 5), `timingCacheFile` (TensorRT
    only) and `int8` (`"paired"`, `"all"`, `"any"`: see `check_quantized`).
    """

    reads_modules = False

    def __init__(self, name: str, module: str) -> None:
        """Set the name of the runtime, and the Python module that it is imported from."""
        self.name = name
        self._module = module

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> "TensorRtSession":
        path = onnx_path(source, self.name)
        settings = tensorrt_settings(options.settings, self.name)
        return TensorRtSession(self._package(), self.name, path, options, settings)

    @override
    def version(self) -> str:
        return str(self._package().__version__)

    def _package(self) -> Any:  # noqa: ANN401 (the package has no types)
        with needing(self._module, self.name.replace("_", "-"), f"building for {self.name}"):
            return importlib.import_module(self._module)


class TensorRtSession(Session):
    """An ONNX file as an engine, which is loaded onto the GPU on its first run."""

    def __init__(
        self,
        package: Any,  # noqa: ANN401 (the package has no types)
        name: str,
        path: Path,
        options: BuildOptions,
        settings: TensorRtSettings,
    ) -> None:
        """Parse, check and build the file at `path`."""
        self._package, self._name, self._path = package, name, path
        self._told: list[str] = []
        self._logger = _logger(package, self._told)
        self._builder = package.Builder(self._logger)
        flags = 1 << int(package.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self._network = self._builder.create_network(flags)
        started = time.perf_counter()
        self._parse()
        parsed = time.perf_counter()
        quantized = quantized_layers(self._network)
        check_quantized(quantized, settings.int8)
        self.inputs = tuple(
            _spec(self._network.get_input(number)) for number in range(self._network.num_inputs)
        )
        self._outputs = tuple(
            _spec(self._network.get_output(number)) for number in range(self._network.num_outputs)
        )
        capability = self._capability(settings)
        self._engine: bytes | None
        self._engine, was_kept = kept_engine(
            options.cache,
            {
                "runtime": name,
                "version": str(package.__version__),
                "model": content_digest(path) if options.cache else "",
                "capability": capability,
                "settings": repr(settings),
                "profile": str(options.profile),
            },
            lambda: self._build(settings, capability, detailed=options.profile),
        )
        self.facts = EngineFacts(
            version=str(package.__version__),
            compute_capability=capability,
            layers=self._network.num_layers,
            quantized=quantized,
            parse_seconds=parsed - started,
            build_seconds=time.perf_counter() - parsed,
            size_bytes=len(self._engine),
            was_kept=was_kept,
        )

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        feeds = named_arrays(inputs, self.inputs)
        context = self._loaded().create_execution_context()
        given = {name: torch.from_numpy(array).cuda() for name, array in feeds.items()}
        for name, tensor in given.items():
            if not context.set_input_shape(name, tuple(tensor.shape)):
                raise RuntimeFailure(
                    f"Input '{name}' has shape {tuple(tensor.shape)}, outside of the shapes that "
                    "the engine was built for. Build it with minShapes, optShapes and maxShapes "
                    "around it."
                )
        results = [
            torch.empty(
                tuple(context.get_tensor_shape(spec.name)),
                dtype=getattr(torch, spec.dtype),
                device="cuda",
            )
            for spec in self._outputs
        ]
        places = dict(zip([spec.name for spec in self._outputs], results, strict=True))
        for name, tensor in (given | places).items():
            context.set_tensor_address(name, tensor.data_ptr())
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it so

        def call() -> object:
            # `given` is used here so that the memory of the inputs lives as long as the call.
            if not context.execute_async_v3(stream.cuda_stream):
                raise RuntimeFailure(f"{self._name} failed on {list(given)}: {self._last()}")
            stream.synchronize()
            return results

        return call

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        return tuple(
            (one.float() if one.dtype == torch.bfloat16 else one).cpu().numpy() for one in outputs
        )

    @override
    def close(self) -> None:
        self._engine = None

    @property
    def serialized(self) -> bytes:
        """The engine as bytes, for a file or another process.

        Raises:
            RuntimeFailure: the session is closed.
        """
        if self._engine is None:
            raise RuntimeFailure("The session is closed; build another one.")
        return self._engine

    def inspect(self) -> str:
        """Return the engine's layers as TensorRT's own JSON text.

        Detailed if the session was built with `BuildOptions(profile=True)`.

        Raises:
            RuntimeFailure: there is no GPU to load the engine onto.
        """
        inspector = self._loaded().create_engine_inspector()
        return str(inspector.get_engine_information(self._package.LayerInformationFormat.JSON))

    def _parse(self) -> None:
        parser = self._package.OnnxParser(self._network, self._logger)
        if not parser.parse_from_file(str(self._path)):
            fault = parser.get_error(0) if parser.num_errors else None
            where = f"at node '{fault.node_name()}' ({fault.node_operator()}): " if fault else ""
            raise RuntimeFailure(
                f"{self._name} {self._package.__version__} refuses '{self._path}': "
                f"{where}{fault.desc().strip() if fault else self._last()}"
            )

    def _capability(self, settings: TensorRtSettings) -> str:
        if settings.compute_capability:
            known = self._package.ComputeCapability.__members__
            if settings.compute_capability not in known:
                raise RuntimeFailure(
                    f"{self._name} {self._package.__version__} builds for no compute capability "
                    f"'{settings.compute_capability}'; it knows "
                    f"{_listed(self._package.ComputeCapability)}."
                    f"{did_you_mean(settings.compute_capability, known)}"
                )
            return settings.compute_capability
        if not torch.cuda.is_available():
            raise RuntimeFailure(
                f"There is no GPU here that {self._name} could build for. Name the one that will "
                "run the engine, as TensorRT for RTX can: "
                "settings=(('computeCapability', '8.9'),); TensorRT itself needs the GPU."
            )
        major, minor = torch.cuda.get_device_capability()
        found = f"SM{major}{minor}"
        # TensorRT itself has no such list: it builds for the present GPU
        listed = getattr(self._package, "ComputeCapability", None)
        if listed is not None and found not in listed.__members__:
            raise RuntimeFailure(
                f"{self._name} {self._package.__version__} runs on no GPU of compute capability "
                f"{major}.{minor}, which {torch.cuda.get_device_name()} has; it knows "
                f"{_listed(listed)}. Use TensorRT (nncfx[tensorrt]) or ONNX Runtime's "
                "provider 'cuda'."
            )
        return found

    def _build(self, settings: TensorRtSettings, capability: str, *, detailed: bool) -> bytes:
        package = self._package
        config = self._builder.create_builder_config()
        # required for TensorRT to try kernels that skip zeros, if two of four weights are zero
        config.set_flag(package.BuilderFlag.SPARSE_WEIGHTS)
        if settings.compute_capability:
            config.num_compute_capabilities = 1
            config.set_compute_capability(package.ComputeCapability.__members__[capability], 0)
        if settings.level is not None:
            config.builder_optimization_level = settings.level
        if detailed:
            config.profiling_verbosity = package.ProfilingVerbosity.DETAILED
        self._add_profile(config, settings)
        cache = _timing_cache(config, settings.timing_cache)
        engine = self._builder.build_serialized_network(self._network, config)
        if engine is None:
            raise RuntimeFailure(
                f"{self._name} {package.__version__} cannot build '{self._path}' for "
                f"{capability}: {self._last()}"
            )
        if settings.timing_cache is not None:
            write_whole(settings.timing_cache, [bytes(memoryview(cache.serialize()))])
        return bytes(memoryview(engine))

    def _add_profile(self, config: Any, settings: TensorRtSettings) -> None:  # noqa: ANN401
        settings.check_names([spec.name for spec in self.inputs])
        profile = self._builder.create_optimization_profile()
        for spec in self.inputs:
            if None in spec.shape:
                profile.set_shape(spec.name, *settings.shapes_of(spec))
        config.add_optimization_profile(profile)

    def _loaded(self) -> Any:  # noqa: ANN401 (the package has no types)
        serialized = self.serialized
        if not torch.cuda.is_available():
            raise RuntimeFailure(
                f"Running or inspecting an engine of {self._name} needs an NVIDIA GPU and a torch "
                "built for CUDA, and this machine has none. The engine itself is built: write "
                "`session.serialized` to a file and take it to the GPU."
            )
        engine = self._package.Runtime(self._logger).deserialize_cuda_engine(serialized)
        if engine is None:
            raise RuntimeFailure(f"{self._name} does not load its engine: {self._last()}")
        return engine

    def _last(self) -> str:
        return self._told[-1] if self._told else "it gave no reason"


def _listed(capabilities: Any) -> str:  # noqa: ANN401 (the package has no types)
    return ", ".join(one for one in capabilities.__members__ if one.startswith("SM"))


def _logger(package: Any, told: list[str]) -> Any:  # noqa: ANN401 (the package has no types)
    """Return a logger that keeps TensorRT's errors in `told` and prints nothing."""
    base: Any = package.ILogger

    class Logger(base):  # type: ignore[misc]  # a base class of an untyped package
        def __init__(self) -> None:
            base.__init__(self)

        def log(self, severity: Any, message: str) -> None:  # noqa: ANN401
            if severity <= base.ERROR:
                told.append(message.strip())

    return Logger()


def _spec(tensor: Any) -> InputSpec:  # noqa: ANN401 (the package has no types)
    shape = tuple(None if size < 0 else int(size) for size in tensor.shape)
    return InputSpec(tensor.name, shape, _TYPES.get(tensor.dtype.name, tensor.dtype.name))


def _timing_cache(config: Any, path: Path | None) -> Any:  # noqa: ANN401 (no types)
    if path is None:
        return None
    cache = config.create_timing_cache(path.read_bytes() if path.exists() else b"")
    if not config.set_timing_cache(cache, False):
        raise RuntimeFailure(f"The timing cache '{path}' is of another GPU or version; delete it.")
    return cache
