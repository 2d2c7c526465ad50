"""An earlier `nncfx benchmark --json` as the baseline of a new one."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jsonschema

from nncfx.cli.timing.files import Series
from nncfx.errors import ArgumentError, StorageError, error_text
from nncfx.evidence.machine import machine_facts
from nncfx.untrusted import read_json

_MODEL: Final = {
    "type": "object",
    "required": ["path", "median_ms", "interval_ms"],
    "properties": {
        "path": {"type": "string"},
        "median_ms": {"type": "number"},
        "interval_ms": {
            "type": "array",
            "items": {"type": "number"},
            "minItems": 2,
            "maxItems": 2,
        },
    },
}
_SERIES: Final = {
    "type": "object",
    "required": ["runtime", "batch", "threads", "models"],
    "properties": {
        "runtime": {"type": "string"},
        "batch": {"type": "integer"},
        "threads": {"type": ["integer", "null"]},
        "models": {"type": "array", "items": _MODEL},
    },
}
_SCHEMA: Final = {
    "type": "object",
    "required": ["series", "machine"],
    "properties": {
        "series": {"type": "array", "items": _SERIES},
        "machine": {
            "type": "object",
            "required": ["processor"],
            "properties": {"processor": {"type": ["string", "null"]}},
        },
    },
}
"""The parts of the output of `nncfx benchmark --json` that are read."""


@dataclass(frozen=True)
class Baseline:
    """The measurements of an earlier run, and where they are stored."""

    path: Path
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A model of the baseline, then and now.

    Attributes:
        name: file, runtime and batch.
        before_ms: median of the baseline.
        after_ms: median now.
        is_regression: True if even the lower end of the interval now exceeds the upper end of the
            baseline's by more than the tolerance.
    """

    name: str
    before_ms: float
    after_ms: float
    is_regression: bool


def changes(found: Sequence[Series], baseline: Baseline, tolerance: float) -> list[Change]:
    """Return the change of each model that is also in the baseline.

    Models are matched by file name, runtime, batch and threads. Overlapping intervals are not a
    regression.

    Args:
        found: the new measurements.
        baseline: from `read_baseline`.
        tolerance: the fraction by which the time may grow, at least 0.

    Raises:
        ArgumentError: the baseline has none of these models.
    """
    before = {
        (Path(model["path"]).name, series["runtime"], series["batch"], series["threads"]): model
        for series in baseline.document["series"]
        for model in series["models"]
    }
    matched = [
        (key, before[key], item.timing)
        for series in found
        for item in series.comparisons
        if (key := (item.path.name, series.runtime, series.batch, series.threads)) in before
    ]
    if not matched:
        raise ArgumentError(
            f"The baseline '{baseline.path}' has none of these models on these runtimes with this "
            f"batch and these threads; it has {'; '.join(_spelt(key) for key in before)}."
        )
    return [
        Change(
            name=_spelt(key),
            before_ms=model["median_ms"],
            after_ms=timing.median_ms,
            is_regression=timing.interval_ms[0] > (1 + tolerance) * model["interval_ms"][1],
        )
        for key, model, timing in matched
    ]


def _spelt(key: tuple[str, str, int, int | None]) -> str:
    name, runtime, batch, threads = key
    return f"{name} on {runtime}, batch {batch}, threads {threads or 'as the runtime chose'}"


def read_baseline(path: Path) -> Baseline:
    """Return the baseline in the file at `path`, the output of `nncfx benchmark --json`.

    Raises:
        ArgumentError: it is from another processor.
        StorageError: there is no such file, or it is not a baseline.
    """
    if not path.is_file():
        raise StorageError(
            f"There is no baseline '{path}'. Write one: "
            f"nncfx benchmark ... --json > {shlex.quote(str(path))}"
        )
    try:
        document: Any = read_json(path.read_bytes())
        jsonschema.validate(document, _SCHEMA)
    except (ValueError, jsonschema.ValidationError) as error:
        raise StorageError(
            f"'{path}' is not a baseline: {error_text(error).splitlines()[0]}. Write one with: "
            "nncfx benchmark ... --json"
        ) from error
    here, there = machine_facts().get("processor"), document["machine"]["processor"]
    if here != there:
        raise ArgumentError(
            f"The baseline '{path}' was measured on '{there}', and this is '{here}'; their times "
            "cannot be compared. Measure a baseline here."
        )
    return Baseline(path, document)
