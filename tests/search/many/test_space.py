"""Spaces map candidates to the unit cube and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.search import Choice, Range, Space

SPACE = Space([Range("level", 0.2, 0.8), Choice("bits", (2, 4, 8)), Choice("kind", ("a", "b"))])


@given(st.tuples(*[st.floats(0, 1)] * 3))
def test_encoding_what_was_decoded_gives_the_same_candidate(point: tuple[float, ...]) -> None:
    candidate = SPACE.decode(point)
    again = SPACE.decode(SPACE.encode(candidate))
    assert again == pytest.approx(candidate)
    assert again["bits"] == candidate["bits"]


def test_corners_are_the_ends() -> None:
    assert SPACE.decode([0, 0, 0]) == {"level": 0.2, "bits": 2, "kind": "a"}
    assert SPACE.decode([1, 1, 1]) == {"level": 0.8, "bits": 8, "kind": "b"}
    assert SPACE.encode({"level": 0.5, "bits": 4, "kind": "b"}) == pytest.approx([0.5, 0.5, 1.0])


def test_a_space_of_choices_lists_every_candidate_once() -> None:
    space = Space([Choice("a", (1, 2, 3)), Choice("b", ("x", "y"))])
    found = [tuple(space.decode(point).values()) for point in space.every_point()]
    assert found == [(1, "x"), (1, "y"), (2, "x"), (2, "y"), (3, "x"), (3, "y")]
    assert space.size == 6
    assert SPACE.size == float("inf")


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        ({"level": 0.9, "bits": 2, "kind": "a"}, "'level' is 0.9; it is a number from 0.2 to 0.8"),
        ({"level": 0.5, "bits": 3, "kind": "a"}, "'bits' is 3; it is one of 2, 4, 8"),
        ({"level": 0.5, "bits": 2}, "says nothing of 'kind'"),
        ({"levle": 0.5}, "Did you mean 'level'"),
    ],
)
def test_a_candidate_of_another_space_is_refused(
    candidate: dict[str, float | int | str], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        SPACE.encode(candidate)


def test_dimensions_that_say_nothing_are_refused() -> None:
    with pytest.raises(ArgumentError, match="the lower first"):
        Range("level", 0.5, 0.5)
    with pytest.raises(ArgumentError, match="at least two"):
        Choice("bits", (4, 4))
    with pytest.raises(ArgumentError, match="no name twice"):
        Space([Range("a"), Range("a")])
