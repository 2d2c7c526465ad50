"""The ready objectives read the right measurement and know the right direction."""

import pickle

import pytest

from nncfx import objectives
from nncfx.objectives import Objective, Subject


@pytest.mark.parametrize(
    ("name", "expected", "unit", "maximize"),
    [
        ("footprint", 11.0, "bytes", False),
        ("macs", 13.0, "", False),
        ("parameters", 17.0, "", False),
        ("throughput", 19.0, "examples/s", True),
        ("latency", 23.0, "ms", False),
        ("file_size", 29.0, "bytes", False),
    ],
)
def test_each_measures_its_own_quantity_in_its_own_direction(
    subject: Subject, name: str, expected: float, unit: str, maximize: bool
) -> None:
    objective: Objective = getattr(objectives, name)
    assert objective.evaluate(subject) == expected
    assert (objective.unit, objective.maximize) == (unit, maximize)


@pytest.mark.parametrize("name", ["footprint", "macs", "throughput"])
def test_an_objective_can_travel_to_another_process(subject: Subject, name: str) -> None:
    objective: Objective = getattr(objectives, name)
    copy = pickle.loads(pickle.dumps(objectives.Maximize(objective)))  # noqa: S301 (our own bytes)
    assert copy.evaluate(subject) == objective.evaluate(subject)


def test_the_known_subject_is_a_subject(subject: Subject) -> None:
    assert isinstance(subject, Subject)


def test_the_public_names_are_sorted() -> None:
    assert sorted(objectives.__all__) == objectives.__all__
