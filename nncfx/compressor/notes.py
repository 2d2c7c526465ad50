"""What a report says in words of a search."""

from torch import nn

from nncfx.compressor.preflight import reach_note
from nncfx.compressor.spelling import candidate_words
from nncfx.objectives import Objective
from nncfx.schemes import Scheme
from nncfx.search import SearchResult, SpaceResult

__all__ = ["notes_on"]


def notes_on(
    search: SearchResult | SpaceResult, scheme: Scheme, model: nn.Module, objective: Objective
) -> tuple[str, ...]:
    """Return remarks on what was chosen, and on how little of `model` the scheme reaches."""
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    reached = sum(sizes.get(name, 0) for name in scheme.parameters(model))
    reach = reach_note(reached, sum(sizes.values()))
    notes = (*((reach,) if reach else ()), *_failures(search))
    if isinstance(search, SpaceResult):
        words = candidate_words(search.best.candidate)
        return (*notes, f"chose {words} out of {len(search.trials)} candidates.")
    if search.level > 0.0:
        return notes
    nothing = (
        f"no level kept the metric at {search.threshold:.4f} and improved {objective.name}, so "
        "this study left the model as it was."
    )
    return (*notes, nothing)


def _failures(search: SearchResult | SpaceResult) -> tuple[str, ...]:
    """Return why trials failed, one sentence each: they counted as below the budget."""
    if isinstance(search, SpaceResult):
        failed = [(t.number, candidate_words(t.candidate), t.error) for t in search.trials]
    else:
        failed = [(t.number, f"level {t.level:.4g}", t.error) for t in search.trials]
    return tuple(
        f"trial {number}, {what}, failed and counts as below the budget: {' '.join(error.split())}"
        for number, what, error in failed
        if error is not None
    )
