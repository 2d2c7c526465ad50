"""The search of one level, over the trials of a run."""

from nncfx.compressor.candidate import Forge
from nncfx.compressor.trials import Plan, Trials
from nncfx.search import (
    Measurement,
    SearchResult,
    SearchSettings,
    Study,
    Trial,
    search_level,
)

__all__ = ["search_by_level", "weights_of"]


def search_by_level(
    trials: Trials,
    forge: Forge,
    journal: Study,
    dense: Measurement,
    settings: SearchSettings,
    *,
    warm_start: bool,
) -> SearchResult:
    """Return the search of the level with the best objective that keeps the threshold.

    Raises:
        SearchError: as `search_level`.
    """

    def evaluate(level: float) -> Measurement:
        done = [t for t in journal.trials if t.measurement is not None and t.level > 0]
        plan = Plan(
            place=f"trial {len(journal.trials)}, level {level:.4g}",
            name=weights_of(level),
            level=level,
            start=_start(done, level) if warm_start else None,
            finished=[t.measurement.details for t in done if t.measurement is not None],
        )
        return trials.run(forge, plan)

    return search_level(
        evaluate,
        threshold=trials.threshold,
        maximize=trials.objective.maximize,
        at_zero=dense,
        study=journal,
        settings=settings,
    )


def weights_of(level: float) -> str:
    """Return the name of the weights that the trial of a level leaves."""
    return f"level-{level!r}"


def _start(done: list[Trial], level: float) -> str | None:
    """Return the weights nearest to `level` that lack nothing which it keeps."""
    below = [trial.level for trial in done if trial.level < level]
    return weights_of(max(below)) if below else None
