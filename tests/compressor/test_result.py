"""What a person reads of a result."""

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

import report_evidence as given
from nncfx.compressor import CompressionResult, Evidence, ModelFacts
from nncfx.evidence.judgement import Judgement
from nncfx.search import SearchResult

DENSE = dataclasses.replace(given.DENSE, accuracy=0.98, parameters=299_114)


def text_of(judgement: Judgement | None = None, **changes: object) -> str:
    return text_of_pair(DENSE, dataclasses.replace(DENSE, **changes), judgement)


def text_of_pair(dense: ModelFacts, after: ModelFacts, judgement: Judgement | None = None) -> str:
    facts = SimpleNamespace(
        metric="accuracy",
        dense=dense,
        compressed=after,
        judgement=judgement,
        studies=(),
        batch=16,
        threads=1,
        runtime="torch",
    )
    return str(
        CompressionResult(
            model=None,
            dense=None,
            search=cast("SearchResult", None),
            evidence=cast("Evidence", facts),
            metric=lambda *_: 0.0,
            testloader=[],
            reference=0.98,
        )
    )


def test_large_counts_are_written_whole() -> None:
    assert "parameters      299,114 ->     11,354     26.34x" in text_of(parameters=11_354)


def test_a_latency_that_did_not_clearly_change_is_called_so() -> None:
    text = text_of(latency_ms=1.9, latency_interval_ms=(1.8, 1.95))
    told = "1.05x  (batch 16, 1 thread, torch; intervals overlap: no clear change)"
    assert text.endswith(told)


@pytest.mark.parametrize("interval", [(0.9, 1.1), None])
def test_a_clear_change_of_latency_stands_alone(interval: tuple[float, float] | None) -> None:
    text = text_of(latency_ms=1.0, latency_interval_ms=interval)
    assert text.endswith("2.00x  (batch 16, 1 thread, torch)")


def judged(**changes: object) -> Judgement:
    return dataclasses.replace(given.JUDGEMENT, **changes)


def test_a_loss_is_told_with_its_interval_and_the_data_that_it_was_counted_on() -> None:
    first, second, *_ = text_of(judged()).splitlines()
    assert first.split() == ["accuracy", "0.9800", "->", "0.9800"]
    assert second.strip() == (
        "accuracy lost: 0.01 (0.004 to 0.016 with 95 %), within the budget of 0.02; on 2,000 "
        "examples of valloader, held out, which chose nothing"
    )


def test_a_loss_beyond_the_budget_is_told_before_all_else() -> None:
    text = text_of(judged(loss=0.031, interval=(0.022, 0.04), held_out=False))
    assert text.startswith(
        "OUTSIDE the budget: accuracy lost: 0.031 (0.022 to 0.04 with 95 %), more than the "
        "budget of 0.02; on 2,000 examples of valloader, held out, which chose the model too: "
        "optimistic\n"
    )


@pytest.mark.parametrize(
    ("loss", "interval", "inside", "sure"),
    [
        (0.01, (0.0, 0.019), True, True),
        (0.01, (-0.005, 0.025), True, False),
        (0.02, (0.01, 0.03), True, False),
        (0.03, (0.015, 0.045), False, False),
        (0.03, (0.021, 0.039), False, True),
        (0.01, None, True, False),
    ],
)
def test_a_judgement_is_sure_where_its_interval_lies_on_one_side(
    loss: float, interval: tuple[float, float] | None, *, inside: bool, sure: bool
) -> None:
    found = judged(loss=loss, interval=interval)
    assert (found.is_inside, found.is_sure) == (inside, sure)


def test_files_are_compared_in_one_format_too() -> None:
    """1.37x of a float32 file may be 1.15x of the dense model in the same format."""
    dense = dataclasses.replace(DENSE, file_bytes=1_370_000, packed_bytes=1_150_000)
    after = dataclasses.replace(DENSE, file_bytes=1_000_000, packed_bytes=1_000_000)
    text = text_of_pair(dense, after)
    assert "file B        1,370,000 ->  1,000,000      1.37x  (safetensors -> .nncfx)" in text
    assert "same format   1,150,000 ->  1,000,000      1.15x  (both .nncfx)" in text
