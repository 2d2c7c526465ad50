"""Remarks of a report on a search."""

from torch import nn

from nncfx.compressor.preflight import reach_note
from nncfx.evidence.formatting import candidate_words
from nncfx.evidence.judgement import Judgement
from nncfx.schemes import Scheme
from nncfx.search import SearchResult, SpaceResult


def notes_on(
    search: SearchResult | SpaceResult, scheme: Scheme, model: nn.Module, why_unchanged: str
) -> tuple[str, ...]:
    """Return remarks on the choice, and on how little of `model` the scheme reaches."""
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    reached = sum(sizes.get(name, 0) for name in scheme.parameters(model))
    reach = reach_note(reached, sum(sizes.values()))
    notes = (*((reach,) if reach else ()), *_failures(search))
    if isinstance(search, SpaceResult):
        words = candidate_words(search.best.candidate)
        return (*notes, f"chose {words} out of {len(search.trials)} candidates.")
    return (*notes, why_unchanged) if why_unchanged else notes


def _failures(search: SearchResult | SpaceResult) -> tuple[str, ...]:
    """Return one sentence for each reason why trials failed; they counted as below the budget."""
    if isinstance(search, SpaceResult):
        failed = [(t.number, candidate_words(t.candidate), t.error) for t in search.trials]
    else:
        failed = [(t.number, f"level {t.level:.4g}", t.error) for t in search.trials]
    return tuple(
        f"trial {number}, {what}, failed and counts as below the budget: {' '.join(error.split())}"
        for number, what, error in failed
        if error is not None
    )


def noise_note(
    search: SearchResult | SpaceResult, judgement: Judgement, margin: float | None
) -> str:
    """Return a remark on the noise of the metric and on winners that were rejected."""
    told = []
    if judgement.judged > 1:
        others = f"{judgement.judged - 1} better "
        others += "trial" if judgement.judged == 2 else "trials"  # noqa: PLR2004 (plural)
        told.append(
            f"on {judgement.data}, {others} lost more than the budget, so a safer one was taken."
        )
    if margin is None and _lacks_noise(search):
        told.append(
            "the noise of the metric is unknown, since it cannot be estimated from single "
            "batches, so the search kept nothing of the budget in reserve. Give a 'margin'."
        )
    return " ".join(told)


def _lacks_noise(search: SearchResult | SpaceResult) -> bool:
    if isinstance(search, SpaceResult):
        found = [trial.outcomes for trial in search.trials if trial.outcomes is not None]
        return any("standard_error" not in outcomes for outcomes in found)
    done = [t.measurement for t in search.trials if t.level > 0 and t.measurement is not None]
    return any(measurement.standard_error is None for measurement in done)
