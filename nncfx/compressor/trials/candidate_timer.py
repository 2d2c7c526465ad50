"""Times candidates against the dense model on one runtime."""

import json
import tempfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, final
from weakref import ReferenceType, ref

from torch import nn
from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import StorageError
from nncfx.export import ExportResult, export_onnx
from nncfx.json_codec import decode
from nncfx.objectives import Objective
from nncfx.runtimes import (
    BuildOptions,
    Session,
    Timing,
    TimingPlan,
    call_words,
    compare_profiles,
    runtime_named,
    time_sessions,
    verdict,
)
from nncfx.runtimes.processor import processor_kind
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.storage.formats.whole_file import read_object, write_text
from nncfx.tracing import ExampleInputs

_TIMED: Final = ("ms", "examples/s")


@final
class CandidateTimer(Closing):
    """Times models on one runtime, each interleaved with the dense model.

    The machine's speed drifts, and a search compares candidates measured minutes apart. So the
    dense model is timed with every candidate, and the result is the candidate's advantage over the
    dense model, relative to the dense model's first latency. If other work delays many calls, one
    thread is timed by its CPU time. A context manager; it owns a temporary folder for the exported
    files.

    Args:
        dense: the model to compare with.
        example_inputs: the inputs of one timed call; throughput counts its axis 0 as examples.
        runtime: name of the runtime, such as `"onnxruntime"` or `"torch"`.
        seconds: time to spend on each model of a comparison.
        threads: CPU threads that one call may use; None leaves the choice to the runtime.
        quiet: pauses other work of this run in its body, while times are measured.
        kept: a file for the dense model's first latency, so that a resumed run refers to the same
            value; None: it is measured again.

    Raises:
        ArgumentError: the runtime is unknown, or `threads` is below 1.
    """

    def __init__(  # noqa: PLR0913 (models, inputs and conditions of the timing)
        self,
        dense: nn.Module,
        example_inputs: ExampleInputs,
        runtime: str,
        *,
        seconds: float = 0.5,
        threads: int | None = None,
        quiet: Callable[[], AbstractContextManager[None]] = nullcontext,
        kept: Path | None = None,
    ) -> None:
        self._quiet = quiet
        self._runtime = runtime_named(runtime)
        self._options = BuildOptions(threads=threads)
        self._example_inputs = example_inputs
        self._seconds = seconds
        self._kept = kept
        self._dense = dense
        self._session: Session | None = None
        self._reference: float | None = None
        self._written: dict[str, tuple[ReferenceType[nn.Module], ExportResult]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="nncfx-")

    @property
    def runtime(self) -> str:
        """The name of the runtime."""
        return self._runtime.name

    def told(self, objective: Objective) -> str:
        """Return the call that an objective of time refers to; "" for other objectives."""
        if objective.unit not in _TIMED:
            return ""
        call = call_words(examples_in(self._example_inputs), self._options.threads)
        return f" ({call}, {self.runtime})"

    def open(self) -> None:
        """Build the dense model for the runtime, so that failures are reported before trials.

        Raises:
            MissingExtraError: the runtime or the exporter is not installed.
            ExportError: the dense model cannot be exported.
            RuntimeFailure: the runtime rejects it.
        """
        self._dense_session()

    def throughput(self, model: nn.Module) -> float:
        """Return the examples per second of `model`, from its `latency_ms`.

        Raises:
            MissingExtraError: the runtime or the exporter is not installed.
            ExportError: the model cannot be exported.
            RuntimeFailure: the runtime rejects it.
        """
        return 1000 * examples_in(self._example_inputs) / self.latency_ms(model)

    def latency_ms(self, model: nn.Module) -> float:
        """Return the milliseconds per call of `model`, relative to the dense model's first time.

        Raises:
            MissingExtraError: the runtime or the exporter is not installed.
            ExportError: the model cannot be exported.
            RuntimeFailure: the runtime rejects it.
        """
        reference = self._dense_latency_ms()
        if model is self._dense:
            return reference
        dense, candidate = self.compare(model)
        return reference / verdict(dense, candidate).speed_up

    def compare(self, model: nn.Module, *, seconds: float | None = None) -> tuple[Timing, Timing]:
        """Return the timings of the dense model and of `model`, interleaved.

        Raises:
            MissingExtraError: the runtime or the exporter is not installed.
            ExportError: the model cannot be exported.
            RuntimeFailure: the runtime rejects it.
        """
        plan = TimingPlan(seconds=self._seconds if seconds is None else seconds, clock="auto")
        with self._session_of(model, "candidate") as candidate:
            sessions = {"dense": self._dense_session(), "candidate": candidate}
            with self._quiet():
                times = time_sessions(sessions, self._example_inputs, plan=plan)
        return times["dense"], times["candidate"]

    def layer_times(self, model: nn.Module) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return milliseconds by dotted module name, for the dense model and for `model`.

        The model of the last comparison is not exported again, so it must be unchanged. Both
        mappings are empty on a runtime whose profile nncfx cannot read.

        Raises:
            MissingExtraError: the runtime or the exporter is not installed.
            ExportError: a model cannot be exported.
            RuntimeFailure: the runtime rejects a model.
        """
        if self._runtime.name != "onnxruntime":
            return {}, {}
        files = {
            "dense": self._exported(self._dense, "dense"),
            "candidate": self._exported(model, "candidate"),
        }
        profiles = compare_profiles(
            {name: file.path for name, file in files.items()},
            self._example_inputs,
            modules={name: file.modules for name, file in files.items()},
        )
        before, after = (
            {layer.module: layer.ms for layer in profiles[name].layers} for name in files
        )
        return before, after

    @override
    def close(self) -> None:
        """Close the dense model's session and remove the exported files."""
        if self._session is not None:
            self._session.close()
        self._folder.cleanup()

    def _dense_latency_ms(self) -> float:
        """Return the milliseconds of the dense model, measured once per run."""
        if self._reference is None and self._kept is not None and self._kept.exists():
            self._reference = _kept_latency(self._kept)
        if self._reference is None:
            plan = TimingPlan(seconds=self._seconds, clock="auto")
            sessions = {"dense": self._dense_session()}
            timing = time_sessions(sessions, self._example_inputs, plan=plan)["dense"]
            self._reference = timing.median_ms
            if self._kept is not None:
                facts = {"latency_ms": self._reference, **processor_kind()}
                write_text(self._kept, json.dumps(facts) + "\n")
        return self._reference

    def _export(self, model: nn.Module, name: str) -> ExportResult:
        path = Path(self._folder.name) / f"{name}.onnx"
        # Fixed shapes: faster to export, and timing uses a single shape anyway.
        written = export_onnx(model, path, self._example_inputs, dynamic_batch=False)
        self._written[name] = ref(model), written
        return written

    def _exported(self, model: nn.Module, name: str) -> ExportResult:
        """Return the last export of this name if it is of `model`, else a new one."""
        last = self._written.get(name)
        return last[1] if last and last[0]() is model else self._export(model, name)

    def _session_of(self, model: nn.Module, name: str) -> Session:
        source = model if self._runtime.reads_modules else self._export(model, name).path
        return self._runtime.build(source, self._options)

    def _dense_session(self) -> Session:
        if self._session is None:
            self._session = self._session_of(self._dense, "dense")
        return self._session


def _kept_latency(path: Path) -> float:
    """Return the milliseconds in `path`; files of an earlier version name no processor.

    Raises:
        StorageError: the file is damaged, or was measured on another processor.
    """
    written = read_object(path, "latency")
    for name, here in processor_kind().items():
        if (there := written.get(name, here)) != here:
            raise StorageError(
                f"The run in '{path.parent}' measured its latencies on another processor: {name} "
                f"was {there!r}, here it is {here!r}. They cannot be compared: continue there, "
                "or give another folder."
            )
    return decode(float, written.get("latency_ms"), "$.latency_ms")
