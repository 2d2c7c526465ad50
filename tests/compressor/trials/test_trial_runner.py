"""Warm starts, early stops, and searches over several dimensions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.compressor import CompressionResult, Compressor
from nncfx.errors import ArgumentError, SearchError
from nncfx.lc import DC, DCFineTuned, Recovered, RecoveryData
from nncfx.schemes import AtLevel, Cluster, Compose, Prune, SchemeLike, footprint_bytes
from nncfx.search import Candidate, Choice, Range, SearchSettings, Space, SpaceSettings

Make = Callable[..., Compressor]
ANY_LEVEL = 0.9  # every level is good enough, so that levels rise


class Watched:
    """Direct compression that notes how many weights of the head were zero before."""

    def __init__(self) -> None:
        self.zeros: list[tuple[float, int]] = []

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        self.zeros.append((level, int((model.inner.weight == 0).sum())))
        return DC().recover(model, scheme, level, data)

    def __repr__(self) -> str:
        return "Watched()"


def test_a_warm_start_takes_the_weights_of_the_nearest_lower_level(quick: Make) -> None:
    watched = Watched()
    quick(eps=ANY_LEVEL, optimizer=watched, warm_start=True).run()
    levels, zeros = zip(*watched.zeros, strict=True)
    assert len(levels) == 3
    assert list(levels) == sorted(levels)
    assert zeros[0] == 0
    assert 0 < zeros[1] < zeros[2]


def test_without_it_every_trial_begins_dense(quick: Make) -> None:
    watched = Watched()
    quick(eps=ANY_LEVEL, optimizer=watched).run()
    assert [zeros for _, zeros in watched.zeros] == [0, 0, 0]


def test_a_hopeless_trial_ends_early(quick: Make) -> None:
    steps: list[int] = []

    class Scripted:
        """Recovers all at once up to level 0.7, and nothing above."""

        def recover(
            self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
        ) -> Recovered:
            def judged(_: nn.Module) -> float:
                return 0.0 if level > 0.7 else data.validate(model)

            watched = RecoveryData(
                train=data.train, validate=judged, criterion=data.criterion, stop=data.stop
            )
            found = DCFineTuned(epochs=4, lr=1e-6).recover(model, scheme, level, watched)
            steps.append(len(found.history))
            return found

        def __repr__(self) -> str:
            return "Scripted()"

    settings = SearchSettings(tolerance=0.02, max_evaluations=6)
    changes = {"optimizer": Scripted(), "settings": settings, "stop_hopeless": True}
    quick(**changes).run()
    # at first nobody knows what is usual; then half of the five records are enough
    assert steps[:2] == [5, 5]
    assert 3 in steps[2:]
    assert set(steps) == {3, 5}


@pytest.fixture(scope="module")
def chosen(quick: Make) -> CompressionResult:
    return of_a_space(quick).run()


def of_a_space(quick: Make, **more: Any) -> Compressor:  # noqa: ANN401 (any setting)
    def scheme(candidate: Candidate) -> SchemeLike:
        return Compose(
            [
                AtLevel(Prune(layers=("conv2d",)), float(candidate["convolutions"])),
                AtLevel(Prune(layers=("linear",)), float(candidate["head"])),
                Cluster(bits=int(candidate["bits"])),
            ]
        )

    space = Space(
        [Range("convolutions", 0.0, 0.9), Range("head", 0.0, 0.9), Choice("bits", (3, 6))]
    )
    settings = SpaceSettings(max_evaluations=6, initial=4)
    changes = {"scheme": scheme, "space": space, "settings": settings}
    return quick(**changes, **more)


def test_a_space_gives_the_best_candidate_that_keeps_the_budget_by_two_standard_errors(
    chosen: CompressionResult, trained: nn.Module
) -> None:
    every = [trial.outcomes for trial in chosen.search.trials]
    lost = [chosen.reference - one["metric"] for one in every]
    kept = [
        one["objective"]
        for one, loss in zip(every, lost, strict=True)
        if loss + 2 * one["standard_error"] <= 0.05
    ]
    assert chosen.evidence.judgement.judged == 1  # the first choice was accepted
    assert footprint_bytes(chosen.model) == min(kept) < footprint_bytes(trained)


def test_the_parts_of_the_model_have_the_levels_of_the_candidate(
    chosen: CompressionResult,
) -> None:
    head = chosen.model.head.weight
    share = float((head == 0).float().mean())
    assert share == pytest.approx(chosen.candidate["head"], abs=1 / head.numel())
    assert len(head.unique()) <= 2 ** int(chosen.candidate["bits"])


def test_the_report_says_what_was_chosen(chosen: CompressionResult) -> None:
    (note,) = (note for note in chosen.evidence.notes if "chose" in note)
    bits = chosen.candidate["bits"]
    assert note.endswith(f", bits {bits} out of 6 candidates.")
    assert note.startswith("footprint: chose convolutions 0.")
    with pytest.raises(SearchError, match="Read 'candidate'"):
        _ = chosen.level


def test_a_search_of_a_space_goes_on_from_its_journal(quick: Make, tmp_path: Path) -> None:
    whole = of_a_space(quick, folder=tmp_path / "whole").run()
    journal = tmp_path / "whole" / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(lines[:4]))  # the header and three trials
    again = of_a_space(quick, folder=tmp_path / "whole").run()
    assert again.candidate == whole.candidate
    assert [json.loads(line)["candidate"] for line in journal.read_text().splitlines()[1:]] == [
        json.loads(line)["candidate"] for line in lines[1:]
    ]


def test_a_range_called_level_is_what_the_scheme_is_applied_at(quick: Make) -> None:
    space, settings = (
        Space([Range("level", 0.2, 0.6)]),
        SpaceSettings(max_evaluations=2, initial=2),
    )
    result = quick(eps=ANY_LEVEL, space=space, settings=settings).run()
    weights = [m.weight for m in result.model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    zeros = sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)
    assert zeros == pytest.approx(result.level, abs=1e-3)


def test_settings_of_the_other_search_are_refused(quick: Make) -> None:
    with pytest.raises(ArgumentError, match="one level reads SearchSettings"):
        quick(settings=SpaceSettings())
    with pytest.raises(ArgumentError, match="stop_hopeless judges a trial by others"):
        of_a_space(quick, stop_hopeless=True)


def test_a_level_of_its_own_is_in_range() -> None:
    with pytest.raises(ArgumentError, match="level"):
        AtLevel(Prune(), 1.0)


def test_the_level_asked_for_does_not_reach_a_scheme_with_its_own() -> None:
    layer = nn.Linear(10, 10)
    AtLevel(Prune(), 0.5).compress(layer, 0.9)
    assert int((layer.weight == 0).sum()) == 50
    assert torch.count_nonzero(layer.bias) == 10
