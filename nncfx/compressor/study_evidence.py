"""The evidence of a search: trials, curves over the level, and the choice."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from nncfx.compressor.trials.candidate_search import LEVEL, SAFE
from nncfx.evidence.evidence import Curve, Sample, StudyEvidence
from nncfx.evidence.formatting import candidate_words
from nncfx.objectives import Objective
from nncfx.search import CAUTION, CandidateTrial, SearchResult, SpaceResult, Trial, posterior_curve

_GRID = 101


@final
@dataclass(frozen=True, kw_only=True)
class StudyWords:
    """The words of a report for a study: its name, scheme, recovery and budget."""

    name: str
    scheme: str
    recovery: str
    budget: float


def study(words: StudyWords, search: SearchResult, objective: Objective) -> StudyEvidence:
    """Return the evidence of a search: samples, GP curves, choice, direct compression."""
    dense = search.trials[0]
    if dense.measurement is None:  # trial 0 is given to the search as a measurement
        raise AssertionError
    samples = tuple(map(level_sample, search.trials))
    return StudyEvidence(
        **vars(words),
        objective_name=objective.name,
        objective_unit=objective.unit,
        maximize=objective.maximize,
        threshold=search.threshold,
        dense_accuracy=dense.measurement.metric,
        dense_objective=dense.measurement.objective,
        samples=samples,
        accuracy_curve=_curve([(s.level, s.accuracy) for s in samples]),
        objective_curve=_curve([(s.level, s.objective) for s in samples]),
        level_accuracy=search.level_accuracy,
        chosen_level=search.level,
        comparison=_direct(search),
        caution=search.caution,
    )


def space_study(
    words: StudyWords, search: SpaceResult, objective: Objective, dense_accuracy: float
) -> StudyEvidence:
    """Return the evidence of a search of a space: its candidates and the choice."""
    level = _level(search.best)
    limit, threshold = next(iter(search.problem.at_least.items()))
    return StudyEvidence(
        **vars(words),
        objective_name=objective.name,
        objective_unit=objective.unit,
        maximize=objective.maximize,
        threshold=threshold,
        dense_accuracy=dense_accuracy,
        dense_objective=None,
        samples=tuple(map(candidate_sample, search.trials)),
        accuracy_curve=None,
        objective_curve=None,
        level_accuracy=level,
        chosen_level=level,
        caution=CAUTION if limit == SAFE else 0.0,
        chosen=search.best.number,
    )


def level_sample(trial: Trial) -> Sample:
    """Return the sample of a trial of one level."""
    return _sample(trial, _measured(trial), stage=trial.stage, level=trial.level)


def candidate_sample(trial: CandidateTrial) -> Sample:
    """Return the sample of a trial of a space."""
    words = candidate_words(trial.candidate)
    found, level = trial.outcomes or {}, _level(trial)
    return _sample(trial, found, stage="objective", level=level, candidate=words)


def _level(trial: CandidateTrial) -> float:
    return float(trial.candidate.get(LEVEL, 0.0))


def _measured(trial: Trial) -> Mapping[str, Any]:
    found = trial.measurement
    return {} if found is None else {**found.details, **vars(found)}


def _sample(
    trial: Trial | CandidateTrial,
    found: Mapping[str, Any],
    *,
    stage: str,
    level: float,
    candidate: str = "",
) -> Sample:
    counts = {name: found.get(name) for name in ("parameters", "macs", "footprint_bytes")}
    return Sample(
        number=trial.number,
        stage=stage,
        level=level,
        accuracy=found.get("metric"),
        objective=found.get("objective"),
        state=trial.state,
        seconds=trial.seconds,
        error=trial.error,
        standard_error=found.get("standard_error"),
        **{k: int(n) if isinstance(n, int | float) else None for k, n in counts.items()},
        candidate=candidate,
    )


def _curve(points: list[tuple[float, float | None]]) -> Curve | None:
    known = [(level, value) for level, value in points if value is not None]
    if len({level for level, _ in known}) < 2:  # noqa: PLR2004 (a curve needs two points)
        return None
    levels, values = zip(*known, strict=True)
    end = max(levels)
    grid = [end * step / (_GRID - 1) for step in range(_GRID)]
    return Curve(**vars(posterior_curve(levels, values, grid)))


def _direct(search: SearchResult) -> tuple[Sample, ...]:
    found = [(trial, _measured(trial).get("direct_metric")) for trial in search.trials]
    return tuple(
        Sample(
            number=trial.number,
            stage=trial.stage,
            level=trial.level,
            accuracy=float(metric),
            objective=None,
            state="done",
            seconds=0.0,
        )
        for trial, metric in found
        if isinstance(metric, float | int)
    )
