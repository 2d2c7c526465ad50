"""The search over several dimensions, over the trials of a run."""

import dataclasses
from collections.abc import Mapping, Sequence

from nncfx.compressor.trials.candidate import Factories
from nncfx.compressor.trials.trial_runner import TrialPlan, Trials
from nncfx.compressor.trials.trial_weights import digest
from nncfx.evidence.formatting import candidate_words
from nncfx.search import (
    CAUTION,
    Candidate,
    CandidateStudy,
    CandidateTrial,
    Measurement,
    Problem,
    Range,
    Space,
    SpaceResult,
    SpaceSettings,
    SplitEvaluation,
    known_to,
    nearest_trial,
    search_space,
)

LEVEL = "level"
"""The dimension for the level of schemes, if the space has it."""
SAFE = "safe metric"
"""The limited outcome if the metric has noise: the metric minus `CAUTION` standard errors."""
_LIMITED = "metric"


def search_by_candidate(
    trials: Trials,
    factory_of: Factories,
    journal: CandidateStudy,
    space: Space,
    settings: SpaceSettings,
    *,
    warm_start: bool,
) -> SpaceResult:
    """Search for the candidate with the best objective that keeps the threshold.

    Args:
        trials: Evaluates candidates.
        factory_of: Returns the factory for a candidate's scheme.
        journal: The study.
        space: The choices; a dimension "level" is the level of schemes, which is 0 without it.
        settings: The budget of the search.
        warm_start: Whether trials start from the weights of the nearest one.

    Raises:
        SearchError: as `search_space`.
    """
    near = space if warm_start else None
    is_noisy = trials.standard_error is not None

    def evaluate(candidate: Candidate) -> dict[str, float]:
        found = trials.run(plan_of(candidate, journal.trials, factory_of, near))
        return _outcomes(found, is_noisy=is_noisy)

    def finish(candidate: Candidate, found: Measurement) -> dict[str, float]:
        plan = plan_of(candidate, journal.trials, factory_of, near, is_beside=True)
        return _outcomes(trials.ended(plan, found), is_noisy=is_noisy)

    beside = SplitEvaluation[Candidate, Mapping[str, float]](
        prepare=lambda candidate, after: (candidate, tuple(journal.trials[:after])),
        work=_Work(trials=trials.for_workers(), factory_of=factory_of.for_workers(), near=near),
        finish=finish,
    )
    problem = Problem(
        space=space,
        objectives={"objective": "maximize" if trials.objective.maximize else "minimize"},
        at_least={_LIMITED if trials.standard_error is None else SAFE: trials.threshold},
    )
    found = search_space(
        evaluate if trials.executor is None else beside,
        problem,
        settings=settings,
        study=journal,
        executor=trials.executor,
    )
    return found if trials.standard_error is None else _safest_at_least(found, trials.threshold)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Work:
    """The work of a worker, with everything needed for it."""

    trials: Trials
    factory_of: Factories
    near: Space | None

    def __call__(self, sent: tuple[Candidate, Sequence[CandidateTrial]]) -> Measurement:
        candidate, before = sent
        plan = plan_of(candidate, before, self.factory_of, self.near, is_beside=True)
        return self.trials.begun(plan)


def _outcomes(found: Measurement, *, is_noisy: bool) -> dict[str, float]:
    counts = {
        name: float(value)
        for name, value in found.details.items()
        if isinstance(value, int | float)
    }
    noise = {SAFE: found.safe_metric(CAUTION)} if is_noisy else {}
    if found.standard_error is not None:
        noise["standard_error"] = found.standard_error
    return {"metric": found.metric, "objective": found.objective, **noise, **counts}


def _safest_at_least(search: SpaceResult, threshold: float) -> SpaceResult:
    """Return the search; if no trial is safely within the budget, choose the safest one.

    The candidates contain no dense model that could be chosen instead.
    """
    if search.feasible:
        return search
    limits = {_LIMITED: threshold}
    relaxed = dataclasses.replace(
        search, problem=dataclasses.replace(search.problem, at_least=limits)
    )
    safety = {t.number: (t.outcomes or {})[SAFE] for t in relaxed.feasible}
    most = max(safety.values(), default=0.0)
    refused = frozenset(number for number, value in safety.items() if value < most)
    return dataclasses.replace(relaxed, refused=refused)


def safer(search: SpaceResult) -> SpaceResult | None:
    """Return the search with the best trial of a higher metric chosen; None if there is none.

    For a choice that other data reject.
    """
    reached = (search.best.outcomes or {})["metric"]
    refused = {
        trial.number
        for trial in search.feasible
        if trial.outcomes is None or trial.outcomes["metric"] <= reached
    }
    found = dataclasses.replace(search, refused=search.refused | refused)
    return found if found.feasible else None


def plan_of(
    candidate: Candidate,
    before: Sequence[CandidateTrial],
    factory_of: Factories,
    near: Space | None,
    *,
    is_beside: bool = False,
) -> TrialPlan:
    """Return the plan of the trial of a candidate, after the trials `before` it.

    With `near`, the space, it starts from the weights of the nearest trial none of whose ranges is
    higher. A trial in parallel with others has no number before it ends, so its weights are named
    after the candidate.
    """
    nearest = None if near is None else _nearest(candidate, before, near)
    words = candidate_words(candidate)
    return TrialPlan(
        place=f"trial {words}" if is_beside else f"trial {len(before)}, {words}",
        name=f"candidate-{digest(candidate)}" if is_beside else f"trial-{len(before)}",
        factory=lambda: factory_of(candidate),
        level=float(candidate.get(LEVEL, 0.0)),
        start=None if nearest is None else plan_of_trial(nearest, before, factory_of, near),
        finished=(),
    )


def plan_of_trial(
    trial: CandidateTrial,
    trials: Sequence[CandidateTrial],
    factory_of: Factories,
    near: Space | None,
) -> TrialPlan:
    """Return the plan of `trial`, one of `trials`."""
    return plan_of(
        trial.candidate,
        known_to(trial, trials),
        factory_of,
        near,
        is_beside=trial.after is not None,
    )


def _nearest(
    candidate: Candidate, before: Sequence[CandidateTrial], space: Space
) -> CandidateTrial | None:
    ranges = [one.name for one in space if isinstance(one, Range)]
    below = [
        trial
        for trial in before
        if all(float(trial.candidate[name]) <= float(candidate[name]) for name in ranges)
    ]
    return nearest_trial(below, candidate, space)
