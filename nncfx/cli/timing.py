"""`nncfx benchmark`: time ONNX files against each other on inputs made from their signatures."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import torch

from nncfx.errors import ArgumentError, NNCFXError, did_you_mean
from nncfx.runtimes import (
    RUNTIMES,
    BuildOptions,
    Runtime,
    Session,
    Timing,
    TimingPlan,
    Verdict,
    admissible_plan,
    compare,
    pinned,
    runtime_named,
    verdict,
)
from nncfx.runtimes.named_inputs import InputSpec

__all__ = [
    "Comparison",
    "Failure",
    "Series",
    "TimingRequest",
    "parse_cpus",
    "parse_settings",
    "parse_shapes",
    "signature_inputs",
    "time_files",
]

Shape = tuple[int, ...]


@runtime_checkable
class _Described(Protocol):
    """A session that knows the signature of its model, as all that read files do."""

    inputs: tuple[InputSpec, ...]


@dataclass(frozen=True, kw_only=True)
class TimingRequest:
    """What to time, and how.

    Attributes:
        paths: ONNX files; the others are compared with the first.
        runtimes: names of the runtimes, measured one after the other.
        batches: sizes of an open axis 0, measured one after the other.
        shapes: of inputs by name, where axes besides the batch are open.
        options: of every session.
        plan: how long and how carefully.
        cpus: processors that everything runs on; none for all.

    Raises:
        ArgumentError: a runtime does not exist or reads no files.
    """

    paths: tuple[Path, ...]
    runtimes: tuple[str, ...]
    batches: tuple[int, ...] = (1,)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    options: BuildOptions = field(default_factory=BuildOptions)
    plan: TimingPlan = field(default_factory=TimingPlan)
    cpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what would fail only after the first measurements."""
        for name in self.runtimes:
            _reader(name)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The timing of one file, and how it stands against the first; None for the first itself."""

    path: Path
    timing: Timing
    verdict: Verdict | None


@dataclass(frozen=True, kw_only=True)
class Series:
    """The files, measured in turns on one runtime with one batch.

    Attributes:
        runtime: its name.
        version: of the runtime.
        batch: size of an open axis 0.
        threads: CPU threads of one call; None where the runtime chose.
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
    batch: int
    error: NNCFXError


def time_files(request: TimingRequest) -> tuple[list[Series], list[Failure]]:
    """Return what was measured on each runtime with each batch, and what could not be.

    A runtime that is missing or refuses a file leaves the others alone. Each file gets random
    inputs of its own signature (numbers from a fixed seed; zeros for whole numbers and flags).
    """
    found: list[Series] = []
    failures: list[Failure] = []
    with pinned(request.cpus) if request.cpus else contextlib.nullcontext():
        for name in request.runtimes:
            for batch in request.batches:
                try:
                    found.append(_series(runtime_named(name), batch, request))
                except NNCFXError as error:
                    failures.append(Failure(name, batch, error))
    return found, failures


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Return the shapes by input name that texts such as "x=1x3x224x224" spell.

    Raises:
        ArgumentError: a text is not of this form.

    >>> parse_shapes(["x=1x3x32x32"])
    {'x': (1, 3, 32, 32)}
    """
    shapes = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(part.isdecimal() and int(part) for part in parts):
            raise ArgumentError(
                f"--input-shape {text!r} does not name an input and its sizes. "
                "Write --input-shape x=1x3x224x224.",
            )
        shapes[name] = tuple(map(int, parts))
    return shapes


def parse_settings(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings that texts such as "computeCapability=8.9" spell.

    Raises:
        ArgumentError: a text is not of this form.

    >>> parse_settings(["mode=max-autotune"])
    (('mode', 'max-autotune'),)
    """
    for text in texts:
        if "=" not in text[1:]:
            raise ArgumentError(f"--setting {text!r} is no NAME=VALUE.")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in texts))


def parse_cpus(text: str | None) -> tuple[int, ...]:
    """Return the processors that a text such as "0,2" names; none for None.

    Raises:
        ArgumentError: the text is no list of numbers.

    >>> parse_cpus("0,2")
    (0, 2)
    """
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentError(f"--cpus {text!r} is no list of processors. Write --cpus 0,1.")
    return tuple(map(int, parts))


def _reader(name: str) -> Runtime:
    chosen = runtime_named(name)
    if chosen.reads_modules:
        readers = sorted(other for other, known in RUNTIMES.items() if not known.reads_modules)
        raise ArgumentError(
            f"Runtime '{name}' runs modules and reads no ONNX files; "
            f"use --runtime {' or '.join(readers)}.",
        )
    return chosen


def _series(runtime: Runtime, batch: int, request: TimingRequest) -> Series:
    with contextlib.ExitStack() as stack:
        calls, sessions = {}, []
        examples = 1
        for number, path in enumerate(request.paths):
            session = stack.enter_context(runtime.build(path, request.options))
            sessions.append(session)
            inputs = signature_inputs(session, path, request.shapes, batch)
            sizes = [value.shape[0] for value in inputs.values() if value.ndim]
            examples = sizes[0] if sizes else 1
            calls[str(number)] = session.bind(inputs)
        plan = admissible_plan(request.plan, sessions)
        timings = list(compare(calls, plan=plan, examples=examples).values())
    names = [str(path) for path in request.paths]
    return Series(
        runtime=runtime.name,
        version=runtime.version(),
        batch=batch,
        threads=request.options.threads,
        comparisons=tuple(
            Comparison(
                path=path,
                timing=timing,
                verdict=verdict(timings[0], timing, names=(names[0], names[number]))
                if number
                else None,
            )
            for number, (path, timing) in enumerate(zip(request.paths, timings, strict=True))
        ),
    )


def signature_inputs(
    session: Session,
    path: Path,
    shapes: Mapping[str, Shape],
    batch: int,
) -> dict[str, torch.Tensor]:
    """Return inputs of the model's own signature: random numbers, zeros for whole ones and flags.

    `shapes` by input name settle open axes; of the others axis 0 is `batch`.

    Raises:
        ArgumentError: `shapes` names an input that the model has not, or an axis stays open.
    """
    assert isinstance(session, _Described)  # noqa: S101 (all sessions that read files are)
    names = [spec.name for spec in session.inputs]
    for name in shapes:
        if name not in names:
            raise ArgumentError(
                f"'{path}' has no input '{name}'; its inputs are {', '.join(names)}."
                f"{did_you_mean(name, names)}",
            )
    generator = torch.Generator().manual_seed(0)
    return {
        spec.name: _filled(spec, shapes.get(spec.name) or _settled(spec, path, batch), generator)
        for spec in session.inputs
    }


def _settled(spec: InputSpec, path: Path, batch: int) -> Shape:
    sizes = [batch if axis == 0 and size is None else size for axis, size in enumerate(spec.shape)]
    if None in sizes:
        spelt = "x".join("?" if size is None else str(size) for size in sizes)
        raise ArgumentError(
            f"Input '{spec.name}' of '{path}' has open axes: {spelt}. "
            f"Settle them with --input-shape {spec.name}=... and a number for each.",
        )
    return cast("Shape", tuple(sizes))


def _filled(spec: InputSpec, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.zeros(shape, dtype=dtype)
