"""`nncfx benchmark`: times ONNX files against each other on inputs from their signatures."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from nncfx.cli.signature import Shape, signature_inputs
from nncfx.errors import ArgumentError, NNCFXError
from nncfx.runtimes import (
    RUNTIMES,
    BuildOptions,
    Energy,
    Runtime,
    Timing,
    TimingPlan,
    Verdict,
    admissible_plan,
    compare,
    energy_per_call,
    pinned,
    runtime_named,
    verdict,
)
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.runtimes.timing.benchmark import of_session


@dataclass(frozen=True, kw_only=True)
class TimingRequest:
    """What to time, and how.

    Attributes:
        paths: ONNX files; the others are compared with the first.
        runtimes: names of the runtimes, measured one after the other.
        batches: sizes of axis 0, measured one after the other; None for the model's own, which is
            that of `shapes`, else 1, if it is open.
        shapes: of inputs by name, if axes besides the batch are open; `""` for the only one.
        options: of every session.
        plan: how long and how carefully to measure.
        cpus: processors that everything runs on; empty for all.
        energy: also measure the energy of a call, in the same time again.

    Raises:
        ArgumentError: a runtime does not exist or reads no files.
        RuntimeFailure: energy is requested, and the platform does not report it.
        MissingExtraError: energy is requested, and nvidia-ml-py is not installed for a GPU.
    """

    paths: tuple[Path, ...]
    runtimes: tuple[str, ...]
    batches: tuple[int | None, ...] = (None,)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    options: BuildOptions = field(default_factory=BuildOptions)
    plan: TimingPlan = field(default_factory=TimingPlan)
    cpus: tuple[int, ...] = ()
    energy: bool = False

    def __post_init__(self) -> None:
        """Refuse requests that would only fail after the first measurements."""
        for name in self.runtimes:
            _reader(name)
        if self.energy:
            energy_per_call(lambda: None, seconds=0.0)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The timing of one file, compared with the first.

    Attributes:
        path: of the file.
        timing: of its calls.
        verdict: against the first file; None for the first itself.
        energy: of a call; None if not requested.
    """

    path: Path
    timing: Timing
    verdict: Verdict | None
    energy: Energy | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """The files, measured alternately on one runtime with one batch.

    Attributes:
        runtime: its name.
        version: of the runtime.
        batch: examples in one call.
        threads: CPU threads of one call; None if the runtime chose.
        comparisons: one for each file.
    """

    runtime: str
    version: str
    batch: int
    threads: int | None
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Failure:
    """A runtime that could not measure the files with this batch, and why."""

    runtime: str
    batch: int | None
    error: NNCFXError


def time_files(request: TimingRequest) -> tuple[list[Series], list[Failure]]:
    """Return the measurements on each runtime with each batch, and the failures.

    A runtime that is missing or rejects a file does not affect the others. Each file gets random
    inputs for its own signature (numbers from a fixed seed; zeros for integers and flags).
    """
    found: list[Series] = []
    failures: list[Failure] = []
    with pinned(request.cpus) if request.cpus else contextlib.nullcontext():
        for name in request.runtimes:
            for batch in request.batches:
                _tell(name, batch, request)
                try:
                    found.append(_series(runtime_named(name), batch, request))
                except NNCFXError as error:
                    failures.append(Failure(name, batch, error))
    return found, failures


def _tell(runtime: str, batch: int | None, request: TimingRequest) -> None:
    """Print on a terminal what takes so long; a moving bar would affect the timing."""
    console = Console(stderr=True)
    if console.is_terminal:
        seconds = len(request.paths) * (request.plan.seconds + request.plan.warm_up_seconds)
        what = runtime if batch is None else f"{runtime}, batch {batch}"
        console.print(f"Measuring in {what}: about {seconds:.0f} s", style="dim")


def _reader(name: str) -> Runtime:
    chosen = runtime_named(name)
    if chosen.reads_modules:
        readers = sorted(other for other, known in RUNTIMES.items() if not known.reads_modules)
        raise ArgumentError(
            f"Runtime '{name}' runs modules and reads no ONNX files; "
            f"use --runtime {' or '.join(readers)}."
        )
    return chosen


def _series(runtime: Runtime, batch: int | None, request: TimingRequest) -> Series:
    with contextlib.ExitStack() as stack:
        calls, sessions, examples = {}, [], {}
        for number, path in enumerate(request.paths):
            session = stack.enter_context(runtime.build(path, request.options))
            sessions.append(session)
            inputs = signature_inputs(session, path, request.shapes, batch)
            examples[str(path)] = examples_in(inputs)
            calls[str(number)] = session.bind(inputs)
        size = _common(examples)
        plan = admissible_plan(request.plan, sessions)
        timed = compare(calls, plan=plan, examples=size).values()
        timings = [
            of_session(timing, session) for timing, session in zip(timed, sessions, strict=True)
        ]
        energies = [
            energy_per_call(call, seconds=plan.seconds) if request.energy else None
            for call in calls.values()
        ]
    names = [str(path) for path in request.paths]
    return Series(
        runtime=runtime.name,
        version=runtime.version(),
        batch=size,
        threads=request.options.threads,
        comparisons=tuple(
            Comparison(
                path=path,
                timing=timing,
                verdict=verdict(timings[0], timing, names=(names[0], names[number]))
                if number
                else None,
                energy=energies[number],
            )
            for number, (path, timing) in enumerate(zip(request.paths, timings, strict=True))
        ),
    )


def _common(examples: Mapping[str, int]) -> int:
    """Return the number of examples in a call, which must be the same for all files."""
    (first, size), *others = examples.items()
    for name, other in others:
        if other != size:
            raise ArgumentError(
                f"One call of '{first}' computes {size} examples and one of '{name}' {other}; "
                "they cannot be compared. Give a --batch that both take, or export them alike."
            )
    return size
