"""The measurements and records of a search: observations, measurements, trials."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from nncfx.errors import ArgumentError, StorageError
from nncfx.json_codec import Limits, decode, encode

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"
Stage: TypeAlias = Literal["dense", "accuracy", "objective"]
State: TypeAlias = Literal["done", "failed"]
Count: TypeAlias = Annotated[int, Limits(minimum=0)]
Seconds: TypeAlias = Annotated[float, Limits(minimum=0)]

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observation:
    """One measured point of a curve over the level.

    Attributes:
        level: compression strength in [0, 1).
        value: the measured value; None if the measurement failed.
        standard_error: of the value, if known.
    """

    level: float
    value: float | None
    standard_error: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one evaluation of a level.

    Attributes:
        metric: the quality that has a lower limit, such as accuracy in [0, 1].
        objective: the value to maximise or minimise, in its own unit.
        details: anything else to keep in the journal; JSON values only.
        standard_error: of the metric, measured against the dense model on a sample: at least 0;
            None if it is unknown, and the metric is assumed to be exact.

    Raises:
        ArgumentError: metric, objective or standard error is not a number, or the latter is
            negative or not finite.
    """

    metric: float
    objective: float
    details: Mapping[str, JSONValue] = dataclasses.field(default_factory=dict)
    standard_error: float | None = None

    def __post_init__(self) -> None:
        error = self.standard_error
        for name in ("metric", "objective", *(() if error is None else ("standard_error",))):
            try:
                # numpy and torch scalars do not compare and serialise like plain numbers
                object.__setattr__(self, name, float(getattr(self, name)))
            except (TypeError, ValueError) as error:
                raise ArgumentError(
                    f"The {name} is {getattr(self, name)!r}, which is not a number. "
                    "Give a float, or a tensor or array of one element."
                ) from error
        if self.standard_error is not None and not 0 <= self.standard_error < math.inf:
            raise ArgumentError(
                f"The standard_error is {self.standard_error}; it is finite and at least 0. Leave "
                "it out where it is not known."
            )

    @property
    def is_finite(self) -> bool:
        """Return whether metric and objective are both finite numbers."""
        return math.isfinite(self.metric) and math.isfinite(self.objective)

    def safe_metric(self, caution: float) -> float:
        """Return the metric minus `caution` standard errors."""
        return self.metric - caution * (self.standard_error or 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """The evaluation of one candidate level, as stored in the journal.

    Attributes:
        number: position in the study; the dense model is trial 0.
        stage: "dense" (level 0), "accuracy" (stage 1) or "objective" (stage 2).
        level: the evaluated level, in [0, 1).
        state: "done", or "failed" when the evaluation raised or was not finite.
        measurement: the measurement; None for a failed trial.
        error: why the trial failed ("ErrorType: message"); None for a done one.
        seconds: wall-clock duration of the evaluation.
        started: when it started, ISO 8601 in UTC.
        after: how many trials had ended when it started, if trials run in parallel; None: all
            earlier ones.
    """

    number: int
    stage: Stage
    level: float
    state: State
    measurement: Measurement | None
    error: str | None
    seconds: float
    started: str
    after: int | None = None

    def __post_init__(self) -> None:
        check_ended(self.state, self.measurement, self.error)

    def is_feasible(self, threshold: float, caution: float = 0.0) -> bool:
        """Return whether the trial is done and its metric safely reaches the threshold."""
        return self.measurement is not None and self.measurement.safe_metric(caution) >= threshold

    def to_json(self) -> dict[str, JSONValue]:
        """Return the trial as the JSON object for a journal line."""
        written = vars(self).copy()
        measured = written.pop("measurement")
        found = vars(measured or Measurement(metric=0, objective=0)).copy()
        if measured is None:
            found |= {"metric": None, "objective": None}
        # the details are already JSON values, and numbers that are not finite were rejected there
        details = {"details": dict(found["details"])}
        return dict(encode(TrialLine(**written, **found), omit="defaults") | details)

    @staticmethod
    def from_json(record: object) -> "Trial":
        """Return the trial that `to_json` wrote.

        Raises:
            ArgumentError: a key is missing or unknown, or a value has the wrong type or range.
        """
        fields = vars(read_line(TrialLine, record)).copy()
        measured = {one.name: fields.pop(one.name) for one in dataclasses.fields(Measurement)}
        done = Measurement(**measured) if fields["state"] == "done" else None
        return Trial(**fields, measurement=done)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrialLine:
    """A trial in a journal: the measurement is stored among the other keys."""

    number: Count
    stage: Stage
    level: Annotated[float, Limits(minimum=0, below=1)]
    state: State
    metric: float | None
    objective: float | None
    standard_error: float | None = None
    details: Mapping[str, Any]
    error: str | None
    seconds: Seconds
    started: str
    after: Count | None = None


def read_line(kind: type[T], record: object) -> T:
    """Return the `kind` of trial in a journal line.

    Raises:
        ArgumentError: a key is missing or unknown, or a value has the wrong type or range.
    """
    try:
        return decode(kind, record)
    except StorageError as error:
        raise ArgumentError(
            f"This is not what a trial holds: {error} A journal line is written by nncfx.search "
            "only; restore it from a copy."
        ) from error


def check_ended(state: State, measured: object, error: str | None) -> None:
    """Refuse a trial that is done without a measurement, or failed without a reason.

    Raises:
        ArgumentError: it is such a trial.
    """
    if (measured if state == "done" else error) is None:
        lacks = "what was measured" if state == "done" else "an error"
        raise ArgumentError(f"The trial is {state!r} and lacks {lacks}, which belongs to it.")
