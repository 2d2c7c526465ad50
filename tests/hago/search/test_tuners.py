"""The searches as ask and tell."""

import itertools
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.hago.search.bayesian import BayesianTuner
from nncfx.hago.search.tuners import (
    BatchedGreedySearchTuner,
    DefaultSettingTuner,
    GreedySearchTuner,
    GreedySquashTuner,
    RandomSearchTuner,
    SimulatedAnnealingTuner,
    Tuner,
)
from nncfx.hago.strategy.choice_space import Choices

SPACE = ((8, 7, 6, 5, 4), (8,), (6, 5, 4))
SPACES = st.lists(
    st.integers(4, 9).map(lambda most: tuple(range(most, 3, -1))), min_size=1, max_size=5
)


def searched(
    tuner: Tuner, score: Callable[[tuple[int, ...]], float], most: int = 10_000
) -> list[tuple[int, ...]]:
    """Return all candidates of a search, in order."""
    trials = []
    while (candidates := tuner.ask()) and len(trials) < most:
        trials += candidates
        tuner.tell(candidates, [score(one) for one in candidates])
    return trials


def rough(bits: tuple[int, ...]) -> float:
    """A score with ties and without order."""
    return (sum(one * (n + 3) for n, one in enumerate(bits)) * 7919 % 13) / 13


def greedy_oracle(
    choices: Choices, score: Callable[[tuple[int, ...]], float]
) -> list[tuple[int, ...]]:
    """Hago's greedy search, written down as its description reads."""
    trials, decided, best = [], [], None
    for edge in range(len(choices)):
        for tried in choices[edge]:
            suffix = [one[0] for one in choices[edge + 1 :]]
            bits = (*decided, tried, *suffix)
            trials.append(bits)
            key = (score(bits), -sum(bits))
            if best is None or key >= best[0]:
                best = (key, bits)
            if score(bits) < best[0][0]:
                break
        decided.append(best[1][edge])
    return trials


@given(SPACES, st.integers(0, 50))
def test_greedy_asks_what_its_description_says(choices: Choices, salt: int) -> None:
    def score(bits: tuple[int, ...]) -> float:
        return rough((*bits, salt))

    assert searched(GreedySearchTuner(tuple(choices)), score) == greedy_oracle(choices, score)


def test_greedy_by_hand() -> None:
    # 7 bits at the first edge are better, 6 worse; at the second the tie goes to fewer bits
    scores = {(8, 5): 0.5, (7, 5): 0.6, (6, 5): 0.4, (7, 4): 0.6}
    tuner = GreedySearchTuner(((8, 7, 6), (5, 4)))
    assert searched(tuner, scores.__getitem__) == [(8, 5), (7, 5), (6, 5), (7, 5), (7, 4)]
    assert tuner.best == (7, 4)


@given(st.integers(0, 30), st.sampled_from(["greedy", "batched", "squash", "random", "annealing"]))
def test_a_search_told_a_log_goes_on_as_it_would_have(count: int, kind: str) -> None:
    def made() -> Tuner:
        return {
            "greedy": GreedySearchTuner,
            "batched": BatchedGreedySearchTuner,
            "squash": GreedySquashTuner,
            "random": lambda choices: RandomSearchTuner(choices, 40, seed=3),
            "annealing": lambda choices: SimulatedAnnealingTuner(choices, seed=3),
        }[kind](SPACE)

    whole = searched(made(), rough, most=60)
    resumed = made()
    told = []
    while len(told) < count and (candidates := resumed.ask()):
        resumed.tell(candidates, [rough(one) for one in candidates])
        told += candidates
    assert (told + searched(resumed, rough, most=60 - len(told)))[:60] == whole[:60]


def test_batched_greedy_decides_each_edge_by_all_its_choices() -> None:
    def score(bits: tuple[int, ...]) -> float:
        return -abs(bits[0] - 6) - abs(bits[2] - 4)

    tuner = BatchedGreedySearchTuner(SPACE)
    assert len(searched(tuner, score)) == 5 + 1 + 3
    assert tuner.best == (6, 8, 4)


def test_squash_stays_at_an_edge_while_it_is_accepted() -> None:
    def score(bits: tuple[int, ...]) -> float:
        return 1.0 if bits[0] >= 6 else 0.5

    tuner = GreedySquashTuner(((8, 7, 6, 5), (8, 7)), tolerance=0.1)
    trials = searched(tuner, score)
    # refused at 5, then the other edge down to its end, then the first edge once more
    assert trials == [(8, 8), (7, 8), (6, 8), (5, 8), (6, 7), (5, 7)]
    assert tuner.accepted == (6, 7)


def test_squash_ends_where_every_edge_has_its_fewest_bits() -> None:
    tuner = GreedySquashTuner(((5, 4), (5, 4)))
    assert searched(tuner, lambda _: 1.0) == [(5, 5), (4, 5), (4, 4)]


def test_squash_ends_after_its_trials() -> None:
    assert len(searched(GreedySquashTuner(SPACE, most_trials=3), lambda _: 1.0)) == 3


def test_random_search_takes_every_choice_of_every_edge() -> None:
    trials = searched(RandomSearchTuner(SPACE, 500), lambda _: 0.0)
    assert len(trials) == 500
    assert set(trials) == set(itertools.product(*SPACE))


def test_annealing_cools_from_a_half_to_five_ten_thousandths() -> None:
    trials = searched(SimulatedAnnealingTuner(SPACE * 4), rough)
    assert len(trials) == math.ceil(math.log(0.0005 / 0.5) / math.log(0.99))


def test_annealing_changes_a_tenth_of_the_edges_by_two_bits_at_most() -> None:
    choices = ((8, 7, 6, 5, 4),) * 20
    trials = searched(SimulatedAnnealingTuner(choices), lambda _: 1.0)
    for before, after in itertools.pairwise(trials):
        moved = [abs(a - b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(moved) <= 2
        assert max(moved, default=0) <= 2


def test_annealing_goes_back_to_its_base_where_it_is_cold_and_worse() -> None:
    choices = ((8, 7, 6, 5, 4),) * 20
    first = []

    def score(bits: tuple[int, ...]) -> float:
        first[:] = first or [bits]
        return 0.0 if bits == first[0] else -1e6

    trials = searched(SimulatedAnnealingTuner(choices), score)
    for bits in trials:
        assert sum(a != b for a, b in zip(bits, trials[0], strict=True)) <= 2


def test_the_default_is_one_trial_with_the_most_bits() -> None:
    assert searched(DefaultSettingTuner(SPACE), lambda _: 0.0) == [(8, 8, 6)]


def test_of_equal_scores_fewer_bits_are_best() -> None:
    tuner = DefaultSettingTuner(SPACE)
    tuner.tell([(8, 8, 6), (8, 8, 4), (8, 8, 5)], [0.5, 0.5, 0.5])
    assert tuner.best == (8, 8, 4)


def test_an_edge_without_choices_is_refused() -> None:
    with pytest.raises(ArgumentError, match="edge 1 has no bits"):
        GreedySearchTuner(((8,), ()))


@pytest.mark.slow
def test_bayesian_search_beats_random_search_on_a_smooth_score() -> None:
    choices = ((8, 7, 6, 5, 4),) * 8 + ((8,),)
    target = (5, 8, 4, 6, 7, 5, 4, 8, 8)

    def score(bits: tuple[int, ...]) -> float:
        return -float(sum((a - b) ** 2 for a, b in zip(bits, target, strict=True)))

    found = {}
    for tuner in (BayesianTuner(choices, 60), RandomSearchTuner(choices, 60)):
        assert len(searched(tuner, score)) == 60
        found[type(tuner).__name__] = tuner.best_score
    assert found["BayesianTuner"] > found["RandomSearchTuner"]


def test_bayesian_search_ends_at_once_where_nothing_is_free() -> None:
    assert searched(BayesianTuner(((8,), (4,))), lambda _: 0.0) == [(8, 4)]
