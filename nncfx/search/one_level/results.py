"""The results of searches."""

import dataclasses
from collections.abc import Sequence

from nncfx.errors import SearchError
from nncfx.search.trials import Observation, Trial


@dataclasses.dataclass(frozen=True, kw_only=True)
class LevelResult:
    """The highest level found at which a metric still reaches its threshold.

    Attributes:
        level: the feasible end of the bracket, in [0, 1); measured, or 0.
        evaluations: the observations, in order.
        bracket: (highest level known to be feasible, lowest known not to be, or the open end).
        threshold: the requested threshold.
    """

    level: float
    evaluations: Sequence[Observation]
    bracket: tuple[float, float]
    threshold: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class ObjectiveResult:
    """The best measured level of an objective.

    Attributes:
        level: the level with the best value; the lower one on ties.
        value: the objective there.
        evaluations: the observations of this search, in order (without those given to it).
    """

    level: float
    value: float
    evaluations: Sequence[Observation]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The outcome of both stages of the constrained search.

    Attributes:
        trials: every trial, the dense model first as number 0.
        threshold: the smallest acceptable metric.
        maximize: whether the objective was maximised.
        level_accuracy: s_acc, the highest level found feasible in stage 1.
        chosen: the feasible trial with the best objective (the dense one if no other is).
        caution: standard errors by which a feasible metric must exceed the threshold.
    """

    trials: Sequence[Trial]
    threshold: float
    maximize: bool
    level_accuracy: float
    chosen: Trial
    caution: float = 0.0

    @property
    def level(self) -> float:
        """The chosen level."""
        return self.chosen.level

    def safer(self) -> "SearchResult":
        """Return the result with the best trial below the chosen level as the choice.

        For choices that other data reject. The last choice is the dense model.

        Raises:
            SearchError: the dense model is already chosen.
        """
        below = [
            trial
            for trial in self.trials
            if trial.is_feasible(self.threshold, self.caution) and trial.level < self.level
        ]
        if not below:
            raise SearchError("The dense model is chosen, and no level is below 0. Keep it.")
        return dataclasses.replace(self, chosen=best_trial(below, maximize=self.maximize))


def best_trial(trials: Sequence[Trial], *, maximize: bool) -> Trial:
    """Return the trial with the best objective; the one with the lower level on ties."""

    def rank(trial: Trial) -> tuple[float, float]:
        value = 0.0 if trial.measurement is None else trial.measurement.objective
        return (-value if maximize else value, trial.level)

    return min(trials, key=rank)
