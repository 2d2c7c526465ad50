"""`Maximize` and `Minimize` give a direction to an objective or to a function of the model."""

import functools

import pytest

from nncfx.errors import ArgumentError
from nncfx.objectives import Maximize, Minimize, Subject, footprint, throughput


def test_they_set_the_direction_and_keep_the_rest() -> None:
    turned = Maximize(footprint)
    assert turned.maximize
    assert (turned.name, turned.unit) == ("footprint", "bytes")
    assert not Minimize(footprint).maximize


def test_a_ready_objective_in_its_own_direction_is_unchanged() -> None:
    assert Maximize(throughput) == throughput


def test_a_function_of_the_model_is_measured_on_the_model(subject: Subject) -> None:
    def letters(model: str) -> float:
        return len(model)

    objective = Minimize(letters, unit="letters")
    assert objective.evaluate(subject) == 9.0
    assert (objective.name, objective.unit) == ("letters", "letters")


def test_name_and_unit_can_be_given() -> None:
    objective = Maximize(throughput, name="frames", unit="frames/s")
    assert (objective.name, objective.unit) == ("frames", "frames/s")


def test_a_callable_without_a_name_of_its_own_still_gets_one() -> None:
    assert Maximize(lambda _: 1.0).name == "objective"
    assert Maximize(functools.partial(max, 1.0)).name == "partial"


def test_what_is_neither_objective_nor_function_is_refused() -> None:
    with pytest.raises(ArgumentError, match="'throughput' is neither an objective nor a function"):
        Maximize("throughput")  # type: ignore[arg-type]  # wrong on purpose
