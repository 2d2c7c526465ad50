"""A candidate whose measurements are known."""

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class KnownSubject:
    """Every measurement is a different number, so that none can be mistaken for another."""

    model: object = "the model"

    def footprint_bytes(self) -> float:
        return 11.0

    def macs(self) -> float:
        return 13.0

    def parameters(self) -> float:
        return 17.0

    def throughput(self) -> float:
        return 19.0

    def latency_ms(self) -> float:
        return 23.0

    def file_bytes(self) -> float:
        return 29.0


@pytest.fixture
def subject() -> KnownSubject:
    return KnownSubject()
