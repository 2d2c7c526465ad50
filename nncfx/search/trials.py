"""What a search measures and records: observations, measurements, trials."""

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
        value: what was measured there; None when the measurement failed.
        standard_error: of the value, where it is known.
    """

    level: float
    value: float | None
    standard_error: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one evaluation of a level returns.

    Attributes:
        metric: the quality that is bounded from below, such as accuracy in [0, 1].
        objective: what is maximised or minimised, in its own unit.
        details: anything else worth keeping in the journal; JSON values only.
        standard_error: of the metric, as counted against the dense model, on a sample: at least 0;
            None where it is not known, and the metric is taken as exact.

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
                # numpy and torch scalars would neither compare nor serialise as plain numbers do
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
        """Say whether metric and objective are both finite numbers."""
        return math.isfinite(self.metric) and math.isfinite(self.objective)

    def safe_metric(self, caution: float) -> float:
        """Return the metric less `caution` standard errors."""
        return self.metric - caution * (self.standard_error or 0.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trial:
    """The evaluation of one candidate level, as the journal keeps it.

    Attributes:
        number: position in the study; the dense model is trial 0.
        stage: "dense" (level 0), "accuracy" (stage 1) or "objective" (stage 2).
        level: the level that was evaluated, in [0, 1).
        state: "done", or "failed" when the evaluation raised or was not finite.
        measurement: what was measured; None for a failed trial.
        error: why the trial failed ("ErrorType: message"); None for a done one.
        seconds: wall-clock duration of the evaluation.
        started: when it began, ISO 8601 in UTC.
        after: how many trials had ended when it began, where trials run side by side; None: all
            those before it.
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
        """Say whether the trial is done and its metric safely (by `caution`) at the threshold."""
        return self.measurement is not None and self.measurement.safe_metric(caution) >= threshold

    def to_json(self) -> dict[str, JSONValue]:
        """Return the trial as the JSON object that a journal line holds."""
        written = vars(self).copy()
        measured = written.pop("measurement")
        found = vars(measured or Measurement(metric=0, objective=0)).copy()
        if measured is None:
            found |= {"metric": None, "objective": None}
        # the details are JSON values already, and a number that is not finite is refused there
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
    """A trial as a journal holds it: what was measured stands among the rest."""

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
    """Return the `kind` of trial that a journal line holds.

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
    """Refuse a trial that is done and has measured nothing, or failed without a reason.

    Raises:
        ArgumentError: it is such a trial.
    """
    if (measured if state == "done" else error) is None:
        lacks = "what was measured" if state == "done" else "an error"
        raise ArgumentError(f"The trial is {state!r} and lacks {lacks}, which belongs to it.")
