"""What a search measures and records: observations, measurements, trials."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, cast

from nncfx.errors import ArgumentError

__all__ = ["JSONValue", "Measurement", "Observation", "Stage", "Trial"]

JSONValue: TypeAlias = "bool | int | float | str | list[JSONValue] | dict[str, JSONValue] | None"
Stage: TypeAlias = Literal["dense", "accuracy", "objective"]
State: TypeAlias = Literal["done", "failed"]


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

    def is_feasible(self, threshold: float, caution: float = 0.0) -> bool:
        """Say whether the trial is done and its metric safely (by `caution`) at the threshold."""
        return self.measurement is not None and self.measurement.safe_metric(caution) >= threshold

    def to_json(self) -> dict[str, JSONValue]:
        """Return the trial as the JSON object that a journal line holds."""
        measured = self.measurement
        known = measured is not None and measured.standard_error is not None
        return {
            "number": self.number,
            "stage": self.stage,
            "level": self.level,
            "state": self.state,
            "metric": None if measured is None else measured.metric,
            "objective": None if measured is None else measured.objective,
            # absent where it is not known, as in the journals of earlier versions
            **({"standard_error": measured.standard_error} if measured and known else {}),
            "details": {} if measured is None else dict(measured.details),
            "error": self.error,
            "seconds": self.seconds,
            "started": self.started,
            **({} if self.after is None else {"after": self.after}),
        }

    @staticmethod
    def from_json(record: object) -> "Trial":
        """Return the trial that `to_json` wrote.

        Raises:
            ArgumentError: a key is missing or unknown, or a value has the wrong type or range.
        """
        import jsonschema

        try:
            jsonschema.validate(record, _SCHEMA)
        except jsonschema.ValidationError as error:
            place = ".".join(str(part) for part in error.absolute_path) or "the trial"
            raise ArgumentError(
                f"{place} is not what a trial holds: {error.message}. "
                "A journal line is written by nncfx.search.Study only; restore it from a copy."
            ) from error
        fields = cast("dict[str, Any]", record)  # held against the schema just above
        names = ("metric", "objective", "details", "standard_error")
        measured = {key: fields.pop(key) for key in names if key in fields}
        done = Measurement(**measured) if fields["state"] == "done" else None
        if done is not None and not done.is_finite:  # 1e999, say
            raise ArgumentError(
                "The metric or the objective of a done trial is not finite. Restore the journal "
                "from a copy."
            )
        return Trial(**fields, measurement=done)


_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": [
        "number",
        "stage",
        "level",
        "state",
        "metric",
        "objective",
        "details",
        "error",
        "seconds",
        "started",
    ],
    "properties": {
        "number": {"type": "integer", "minimum": 0},
        "stage": {"enum": ["dense", "accuracy", "objective"]},
        "level": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        "state": {"enum": ["done", "failed"]},
        "metric": {"type": ["number", "null"]},
        "objective": {"type": ["number", "null"]},
        "standard_error": {"type": "number", "minimum": 0},
        "details": {"type": "object"},
        "error": {"type": ["string", "null"]},
        "seconds": {"type": "number", "minimum": 0},
        "started": {"type": "string"},
        "after": {"type": "integer", "minimum": 0},
    },
    "if": {"properties": {"state": {"const": "done"}}},
    "then": {"properties": {"metric": {"type": "number"}, "objective": {"type": "number"}}},
    "else": {"properties": {"error": {"type": "string"}}},
}
