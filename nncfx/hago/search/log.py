"""The log of a search: JSON lines, one per trial, on disk before the next trial starts."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from nncfx.errors import SearchError, StorageError, error_text
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.strategy.strategy import Strategy, require_hash
from nncfx.storage.formats.line_file import LineFile, could_begin, json_line, read_lines

LOG_VERSION: Final = 1
"""Written in every line."""

_HAGO_VERSION: Final = 0.1
"""Written in every line of Hago's own logs."""

_HAGO_RESULTS: Final = ("accuracy", "quant_acc", "sim_acc")
"""Hago's keys for accuracy: December 2020, then January 2020; integers before simulated."""

_LATER: Final = ("judged_by",)
"""Settings that early logs of this version do not contain."""

_BEGINNING: Final = b'{"result": {"accuracy": '
"""Of each line that is written here, since keys are sorted."""

_SHOWN: Final = 80

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True)
class TrialRecord:
    """One line of a log.

    Attributes:
        strategy: The evaluated strategy.
        score: The value that the search maximises; by default the accuracy.
        accuracy: Of the simulated graph on the calibration data, in [0, 1].
        settings: Settings of the search: tuner, threshold method, hardware.
    """

    strategy: Strategy
    score: float
    accuracy: float
    settings: Mapping[str, Any]

    def to_line(self) -> bytes:
        """Return the record as a line of JSON with sorted keys."""
        document = {
            "version": LOG_VERSION,
            "strategy": self.strategy.to_json(),
            "result": {"accuracy": self.accuracy, "score": self.score},
            "settings": dict(self.settings),
        }
        return json.dumps(document, sort_keys=True, allow_nan=False).encode() + b"\n"


def append_record(path: PathLike, record: TrialRecord) -> None:
    """Append `record` to the log at `path` in one write, and sync it to disk.

    A line truncated by a killed process is removed first.

    Raises:
        StorageError: the file cannot be written, or is not a log and is not changed.
    """
    log = _log(Path(path))
    if log.lines:
        _record(log.lines[0], f"Line 1 of '{path}'")
    try:
        log.append(record.to_line())
    except OSError as error:
        raise StorageError(
            f"The log '{path}' cannot be written ({error}). Use a path that you may write to."
        ) from error


def read_log(path: PathLike) -> list[TrialRecord]:
    """Return the trials of the log at `path`, in order; none if it does not exist.

    A last line without a line end, left by a killed process, is ignored. Lines written by Hago
    (version 0.1) can be read too: the score is their accuracy, there are no settings, and the
    topology is empty if they have none, so bits and accuracies can be replayed but not used to
    quantize.

    Raises:
        StorageError: a line is not a record of a trial, or has another version, or the path is not
            a readable file.
    """
    lines = enumerate(_log(Path(path)).lines, start=1)
    return [_record(line, f"Line {number} of '{path}'") for number, line in lines]


class TrialLog:
    """The trials of one search: recorded ones, then new ones.

    All share the model and topology of `strategy`, and `settings`, which are JSON values. With a
    `path` of None nothing is written.

    Raises:
        CompressionError: the file is the log of another model, or of other weights.
        SearchError: it is the log of another search.
        StorageError: it cannot be read.
    """

    def __init__(
        self, path: PathLike | None, strategy: Strategy, settings: Mapping[str, Any]
    ) -> None:
        self._path, self._settings = path, settings
        self._records = [] if path is None else read_log(path)
        self._count = 0
        for record in self._records:
            require_hash(record.strategy, strategy.model_hash)
            for name in sorted({*record.settings, *settings}):
                if name in record.settings or name not in _LATER:
                    self._compare(name, record.settings.get(name), settings.get(name))
            self._compare("topology", record.strategy.topology, strategy.topology)

    def upcoming(self, candidates: Sequence[Strategy]) -> list[float]:
        """Return the accuracies of the leading `candidates` that are on record.

        Raises:
            SearchError: the record has another candidate at this point.
        """
        known = self._records[self._count : self._count + len(candidates)]
        for asked, record in zip(candidates, known, strict=False):
            self._compare("bits", record.strategy.bits, asked.bits)
            self._compare("thresholds", record.strategy.thresholds, asked.thresholds)
        return [one.accuracy for one in known]

    def keep(self, strategy: Strategy, score: float, accuracy: float) -> TrialRecord:
        """Return the record of the next trial, and write it if it is not on record yet."""
        record = TrialRecord(strategy, score, accuracy, self._settings)
        if self._path is not None and self._count >= len(self._records):
            append_record(self._path, record)
        self._count += 1
        return record

    def _compare(self, what: str, written: object, asked: object) -> None:
        if written != asked:
            raise SearchError(
                f"The log '{self._path}' belongs to another search: its '{what}' differ. Its "
                "trials cannot be mixed with these. Use another file, the same data and "
                f"settings, or delete it. In the log: {_short(written)}; now: {_short(asked)}."
            )


def better_record(records: Sequence[TrialRecord]) -> TrialRecord:
    """Return the record with the highest score; among equals, fewest bits, then the last."""
    return max(reversed(records), key=lambda one: (one.score, -sum(one.strategy.bits)))


def best_strategy(path: PathLike, graph: QuantGraph | None = None) -> Strategy:
    """Return the strategy of the log with the highest score; among equals, the fewest bits.

    Args:
        path: The log.
        graph: If given, the strategy must have been found for it.

    Raises:
        StorageError: the log is empty, or cannot be read.
        CompressionError: the strategy was found for another model, or other weights.
    """
    records = read_log(path)
    if not records:
        raise StorageError(
            f"The log '{path}' holds no trial. Give the path that the search wrote to."
        )
    strategy = better_record(records).strategy
    if graph is not None:
        require_hash(strategy, graph.model_hash)
    return strategy


def _log(path: Path) -> LineFile:
    """Return the lines of a log, which may not exist yet.

    Raises:
        StorageError: the file cannot be read, or does not start like a log.
    """
    try:
        log = read_lines(path)
    except OSError as error:
        raise StorageError(
            f"The log '{path}' cannot be read ({error}). Give the path of a file."
        ) from error
    # Hago's own lines also have a version, but start differently
    is_log = b'"version"' in log.lines[0] if log.lines else could_begin(log.torn, _BEGINNING)
    if not is_log:
        raise StorageError(
            f"'{path}' is not a log of a search: its first line is not a trial. It is left as it "
            "is. Give the path of a log, or of a file that does not exist yet."
        )
    return log


def _record(line: bytes, place: str) -> TrialRecord:
    try:
        document = json_line(line)
        version = document["version"]
        if version not in (LOG_VERSION, _HAGO_VERSION):
            raise StorageError(
                f"{place} is of log version {version}, and this nncfx reads versions "
                f"{_HAGO_VERSION} and {LOG_VERSION}. Search again, or read it with the nncfx that "
                "wrote it."
            )
        record = (_own_record if version == LOG_VERSION else _hago_record)(document)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        if isinstance(error, StorageError):
            raise StorageError(f"{place}: {error}") from error
        raise StorageError(
            f"{place} is not a record of a trial ({error_text(error)}), so the log is damaged. "
            "Restore it from a copy, or delete it to search again."
        ) from error
    if not (math.isfinite(record.accuracy) and math.isfinite(record.score)):
        raise StorageError(f"{place} has a result that is not finite, so the log is damaged.")
    return record


def _own_record(document: Mapping[str, Any]) -> TrialRecord:
    accuracy, score = (float(document["result"][one]) for one in ("accuracy", "score"))
    strategy = Strategy.from_json(document["strategy"])
    return TrialRecord(strategy, score, accuracy, dict(document["settings"]))


def _hago_record(document: Mapping[str, Any]) -> TrialRecord:
    result = document["result"] if "result" in document else document["results"]
    named = [one for one in _HAGO_RESULTS if result.get(one) is not None]
    if not named:
        raise KeyError(" or ".join(_HAGO_RESULTS))
    accuracy = float(result[named[0]])
    told = document["strategy"]
    untold: dict[str, Any] = {"topology": {"node_conds": [], "edge_conds": []}}
    # all-zero tensors have the threshold 1, as here
    thresholds = {"thresholds": [1.0 if one == 0 else one for one in told["thresholds"]]}
    strategy = Strategy.from_json(untold | told | thresholds)
    return TrialRecord(strategy, accuracy, accuracy, {})


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) < _SHOWN else text[: _SHOWN - 4] + " ..."
