"""The search over several dimensions: the best candidate within limits, or the front."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from nncfx.errors import SearchError
from nncfx.search.attempt import Attempt
from nncfx.search.journaled import Lease
from nncfx.search.many.acquisition import next_point, spread_points
from nncfx.search.many.candidates import CandidateStudy, CandidateTrial, candidate_of
from nncfx.search.many.problem import Problem, SpaceSettings, non_dominated
from nncfx.search.many.space import Candidate
from nncfx.search.workers.driver import Driver, driving
from nncfx.search.workers.executor import Executor, split

_HOPELESS = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpaceResult:
    """The outcome of a search over several dimensions.

    Attributes:
        problem: the problem that was solved.
        trials: every trial, in order.
        refused: numbers of trials that other data rejected; they are not feasible.
    """

    problem: Problem
    trials: Sequence[CandidateTrial]
    refused: frozenset[int] = frozenset()

    @property
    def feasible(self) -> tuple[CandidateTrial, ...]:
        """The done trials that keep every limit, in order."""
        return tuple(
            trial
            for trial in self.trials
            if trial.outcomes is not None
            and self.problem.is_feasible(trial.outcomes)
            and trial.number not in self.refused
        )

    @property
    def best(self) -> CandidateTrial:
        """The feasible trial that is best in the first objective; the earliest on ties.

        Raises:
            SearchError: no trial keeps every limit.
        """
        if not self.feasible:
            raise SearchError(
                f"None of {len(self.trials)} trials keeps the limits {dict(self.problem.at_least)}"
                f" from below and {dict(self.problem.at_most)} from above. Relax one, or allow "
                "more evaluations."
            )
        return max(self.feasible, key=lambda trial: self.problem.gains(trial.outcomes or {})[0])

    @property
    def front(self) -> tuple[CandidateTrial, ...]:
        """The feasible trials that no other beats in all objectives, in order."""
        gains = [self.problem.gains(trial.outcomes or {}) for trial in self.feasible]
        kept = zip(self.feasible, non_dominated(gains), strict=True)
        return tuple(trial for trial, is_kept in kept if is_kept)


def search_space(
    evaluate: Callable[[Candidate], Mapping[str, float]],
    problem: Problem,
    *,
    start: Sequence[Candidate] = (),
    settings: SpaceSettings | None = None,
    study: CandidateStudy | None = None,
    executor: Executor | None = None,
) -> SpaceResult:
    """Search the space of `problem` for its best candidate, or for its front.

    First `start` and points spread over the space are evaluated, then one point of largest
    expected improvement after the other. A trial that raises or returns an outcome that is not
    finite is recorded as failed, its neighbourhood is avoided, and the search continues. It ends
    after `max_evaluations`, or when no candidate is left.

    Args:
        evaluate: returns the outcomes of a candidate by name, at least all that `problem`
            mentions; others are kept in the journal.
        problem: the space, the objectives and the limits.
        start: candidates to evaluate first, such as a good guess; they count as initial ones.
        settings: the budget of the search.
        study: the journal; an interrupted search continues from it.
        executor: evaluates several candidates at the same time, such as `LocalExecutor(4)`; the
            expected improvement then accounts for running trials. None: one after the other, here.

    Raises:
        SearchError: the first four trials failed, or the journal belongs to another search.
        MachineError: memory, disk or a device failed; run again to continue from the journal.
        ArgumentError: a candidate of `start` is not in the space, or an outcome is missing.
        MissingExtraError: BoTorch is not installed.

    Source: Ament et al. (2023); Daulton et al. (2021), Parallel Bayesian Optimization of Multiple
    Noisy Objectives.
    """
    settings = settings or SpaceSettings()
    study = study or CandidateStudy()
    given = [problem.space.encode(candidate) for candidate in start]
    study.bind({**problem.to_json(), **settings.to_json(), "start": [dict(c) for c in start]})
    count = settings.initial or 2 * len(problem.space) + 2
    first = (given + spread_points(problem, count, settings.seed))[: max(count, len(given))]

    def propose(pending: Sequence[Candidate], count: int) -> list[Candidate]:
        _check_any_succeeded(study.trials)
        under_way = [*pending]
        most = min(len(pending) + count, settings.max_evaluations - len(study.trials))
        while len(under_way) < most:
            point = _next(problem, study.trials, under_way, first, settings.seed)
            if point is None:
                break
            under_way.append(problem.space.decode(point))
        return under_way[len(pending) :]

    if executor is None:
        while found := propose((), 1):
            study.run(found[0], problem.outcomes, evaluate)
    else:
        _run_beside(study, problem, executor, evaluate, propose)
    return SpaceResult(problem=problem, trials=tuple(study.trials))


def _run_beside(
    study: CandidateStudy,
    problem: Problem,
    executor: Executor,
    evaluate: Callable[[Candidate], Mapping[str, float]],
    propose: Callable[[Sequence[Candidate], int], Sequence[Candidate]],
) -> None:
    """Evaluate proposals of `propose` on workers, until there are none."""

    def record(lease: Lease, outcome: Attempt[Mapping[str, float]]) -> CandidateTrial:
        candidate = candidate_of(lease.point)
        return study.record(candidate, problem.outcomes, outcome, lease.after)

    driver = Driver(
        study=study,
        executor=executor,
        evaluation=split(evaluate),
        argument_of=candidate_of,
        record=record,
    )
    with driving(executor, evaluate):
        driver.run(lambda points, count: propose([candidate_of(one) for one in points], count))


def _next(
    problem: Problem,
    trials: Sequence[CandidateTrial],
    under_way: Sequence[Candidate],
    first: Sequence[Sequence[float]],
    seed: int,
) -> Sequence[float] | None:
    done = [(trial.candidate, trial.outcomes) for trial in trials if trial.outcomes is not None]
    begun = len(trials) + len(under_way)
    if begun < len(first):
        return first[begun]
    if not done and under_way:
        return None  # no trials to choose by yet
    return next_point(
        problem,
        [problem.space.encode(candidate) for candidate, _ in done],
        [[outcomes[name] for name in problem.outcomes] for _, outcomes in done],
        [problem.space.encode(t.candidate) for t in trials if t.outcomes is None],
        seed + begun,
        [problem.space.encode(candidate) for candidate in under_way],
    )


def _check_any_succeeded(trials: Sequence[CandidateTrial]) -> None:
    if len(trials) >= _HOPELESS and all(trial.outcomes is None for trial in trials):
        raise SearchError(
            f"The first {len(trials)} trials all failed, the last one at "
            f"{dict(trials[-1].candidate)} ({trials[-1].error}), so the search has nothing to go "
            "by. Fix the evaluation, and delete the journal if there is one."
        )
