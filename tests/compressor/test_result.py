"""What a person reads of a result."""

import dataclasses
from types import SimpleNamespace
from typing import cast

import pytest

from nncfx.compressor import CompressionResult, Evidence, ModelFacts
from nncfx.search import SearchResult

DENSE = ModelFacts(
    accuracy=0.98,
    parameters=299_114,
    nonzero=299_114,
    macs=2_446_592,
    footprint_bytes=1_196_456,
    file_bytes=None,
    latency_ms=2.0,
    latency_interval_ms=(1.9, 2.1),
    throughput=500.0,
)


def text_of(**changes: object) -> str:
    after = dataclasses.replace(DENSE, **changes)
    facts = SimpleNamespace(metric="accuracy", dense=DENSE, compressed=after)
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
    assert text.endswith("1.05x  (intervals overlap: no clear change)")


@pytest.mark.parametrize("interval", [(0.9, 1.1), None])
def test_a_clear_change_of_latency_stands_alone(interval: tuple[float, float] | None) -> None:
    assert text_of(latency_ms=1.0, latency_interval_ms=interval).endswith("2.00x")
