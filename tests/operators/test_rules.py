"""Rules that are attached to operations."""

import pytest

from nncfx.errors import ArgumentError
from nncfx.operators import Rules


@pytest.fixture
def rules() -> Rules[str]:
    found = Rules[str](
        lambda one: one.kind, {"clip", "view"}, "a kind of operation", lambda one: one == "fold"
    )
    found("clip")("clips")
    return found


def test_all_functions_of_a_word_have_its_rule(rules: Rules[str]) -> None:
    assert [rules.find(one) for one in ("clamp_", "relu6", "relu")] == ["clips", "clips", None]


def test_the_rule_for_a_function_goes_first_and_a_later_one_goes_before(rules: Rules[str]) -> None:
    rules("relu6", "fold")("clips at 6")
    rules("clip")("clips again")
    assert [rules.find(one) for one in ("relu6", "fold", "clamp")] == [
        *("clips at 6", "clips at 6", "clips again")
    ]


def test_what_is_neither_a_word_nor_a_function_is_refused(rules: Rules[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        rules("clpi")
    assert str(caught.value) == (
        "'clpi' is neither a kind of operation nor a function of torch, as addresses spell it, so "
        "a rule for it would never be used. Did you mean 'clip'?"
    )
