"""A trial is given up only when those before it leave no doubt."""

from hypothesis import given
from hypothesis import strategies as st

from nncfx.search import should_stop_early

FINISHED = [0.5, 0.7, 0.80, 0.85, 0.90]
"""After three of five steps it makes up 0.10 of the 0.12 that it lacks."""


def test_twice_the_part_that_others_made_up_is_granted() -> None:
    # from 0.8 to 0.82 of a reference of 0.9: a fifth, so two fifths of 0.2 are granted
    shy = [0.5, 0.7, 0.8, 0.81, 0.82]
    assert should_stop_early([0.1, 0.2, 0.7], [shy], threshold=0.79, reference=0.9)
    assert not should_stop_early([0.1, 0.2, 0.7], [shy], threshold=0.77, reference=0.9)


def test_the_best_of_the_finished_trials_counts() -> None:
    shy = [0.5, 0.7, 0.8, 0.81, 0.82]
    assert not should_stop_early([0.1, 0.2, 0.7], [shy, FINISHED], threshold=0.79, reference=0.92)


def test_the_first_half_is_never_stopped() -> None:
    assert not should_stop_early([0.0, 0.0], [FINISHED], threshold=0.9, reference=0.92)


def test_without_a_finished_trial_none_is_hopeless() -> None:
    assert not should_stop_early([0.0, 0.0, 0.0], [], threshold=0.9, reference=0.92)
    stopped = FINISHED[:3]
    assert not should_stop_early([0.0, 0.0, 0.0], [stopped], threshold=0.9, reference=0.92)


@given(
    metrics=st.lists(st.floats(0, 1), min_size=1, max_size=8),
    finished=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=8), max_size=3),
    threshold=st.floats(0, 1),
)
def test_a_trial_that_is_good_enough_goes_on(
    metrics: list[float], finished: list[list[float]], threshold: float
) -> None:
    good = [*metrics, threshold]
    assert not should_stop_early(good, finished, threshold=threshold, reference=1.0)
