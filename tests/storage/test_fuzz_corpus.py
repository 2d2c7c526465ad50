"""Inputs that a fuzzer kept: each gives a result or our error, in bounded memory."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent.parent
CORPUS = sorted((ROOT / "tests/storage/corpus").glob("*"))


@pytest.fixture(scope="module")
def fuzzing() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks/fuzz_storage.py")))


def test_the_corpus_is_there() -> None:
    assert len(CORPUS) > 50


def test_the_corpus_ends_in_results_or_our_error(fuzzing: SimpleNamespace) -> None:
    for path in CORPUS:
        fuzzing.run_measured(path.read_bytes())


def test_the_inputs_to_start_from_are_valid(fuzzing: SimpleNamespace) -> None:
    for data in fuzzing.known_inputs():
        fuzzing.READERS[data[0]](data[1], data[2:])


def test_mutations_end_in_results_or_our_error(fuzzing: SimpleNamespace) -> None:
    assert fuzzing.mutate(seconds=2, seed=0) >= 64
