"""Searches for bits with an ask-and-tell interface, independent of how candidates are evaluated.

`ask` returns the candidates of the next batch, an empty list at the end of the search; `tell`
receives their scores in the same order, higher is better. A tuner that is told the scores of a log
asks for the candidates of that log again, so a search can continue where it stopped.
"""

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, TypeAlias

from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.hago.strategy.choice_space import Choices

Bits: TypeAlias = tuple[int, ...]
"""A candidate: the bits of every quantized edge."""

_SQUASH_TRIALS: Final = 3000
_RANDOM_TRIALS: Final = 1000


class Tuner(ABC):
    """A search over `choices`.

    Attributes:
        choices: The bits that every edge can have, the most first.
        best: The candidate with the highest score so far; among equals, the one with fewer bits in
            total, then the later one. None before the first score.
        best_score: Its score; minus infinity before the first.

    Raises:
        ArgumentError: an edge has no choice.
    """

    def __init__(self, choices: Choices) -> None:
        for number, bits in enumerate(choices):
            if not bits:
                raise ArgumentError(
                    f"Quantized edge {number} has no bits to choose from. Give at least one."
                )
        self.choices = choices
        self.best: Bits | None = None
        self.best_score = -math.inf

    @abstractmethod
    def ask(self) -> list[Bits]:
        """Return the candidates to evaluate next; empty when the search is over."""

    def tell(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        """Record the scores of `candidates`, the result of the last `ask`."""
        for bits, score in zip(candidates, scores, strict=True):
            if self.best is None or _rank(bits, score) >= _rank(self.best, self.best_score):
                self.best, self.best_score = bits, score
        self._told(candidates, scores)

    @abstractmethod
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        """Update the search after `best` was updated."""

    @property
    def _most(self) -> Bits:
        return tuple(one[0] for one in self.choices)


class DefaultSettingTuner(Tuner):
    """One trial: the given bits, or the most of every edge."""

    def __init__(self, choices: Choices, bits: Bits | None = None) -> None:
        super().__init__(choices)
        self._left = [self._most if bits is None else bits]

    @override
    def ask(self) -> list[Bits]:
        return list(self._left)

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        self._left.clear()


class RandomSearchTuner(Tuner):
    """Draws the bits of every edge uniformly, `trials` times."""

    def __init__(self, choices: Choices, trials: int = _RANDOM_TRIALS, seed: int = 0) -> None:
        super().__init__(choices)
        self._left = trials
        self._random = random.Random(seed)  # noqa: S311 (a search, not a secret)
        self._asked: list[Bits] = []

    @override
    def ask(self) -> list[Bits]:
        if not self._asked and self._left:
            self._asked = [tuple(map(self._random.choice, self.choices))]
        return self._asked

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        self._left -= 1
        self._asked = []


class SimulatedAnnealingTuner(Tuner):
    """Starts at random and changes a tenth of the edges by up to two bits; may accept worse ones.

    The temperature falls from 0.5 to 0.0005 by 1 % per trial: about 690 trials.

    Source: Hago, `simulated_annealing` (January 2020).
    """

    def __init__(self, choices: Choices, seed: int = 0) -> None:
        super().__init__(choices)
        self._random = random.Random(seed)  # noqa: S311 (a search, not a secret)
        self._temperature = 0.5
        self._base: Bits | None = None
        self._base_score = -math.inf
        self._asked = tuple(map(self._random.choice, choices))

    @override
    def ask(self) -> list[Bits]:
        return [self._asked] if self._temperature > 0.0005 else []  # noqa: PLR2004 (as above)

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        [bits], [score] = candidates, scores
        worse = self._base_score - score
        if worse <= 0 or self._random.random() < math.exp(-worse / self._temperature):
            self._base, self._base_score = bits, score
        self._temperature *= 0.99
        self._asked = self._neighbour(self._base or bits)

    def _neighbour(self, bits: Bits) -> Bits:
        changed = list(bits)
        for edge in self._random.sample(range(len(bits)), len(bits) // 10):
            most, least = self.choices[edge][0], self.choices[edge][-1]
            moved = changed[edge] + self._random.randint(-2, 2)
            changed[edge] = min(max(moved, least), most)
        return tuple(changed)


class GreedySearchTuner(Tuner):
    """Edge by edge, from the most bits downward until the score falls below the best.

    Decided edges keep their bits, later ones have the most. An edge gets its bits in the best
    candidate so far.

    Source: Hago, `GreedySearchTuner` (December 2020).
    """

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._decided: list[int] = []
        self._choice = 0

    @override
    def ask(self) -> list[Bits]:
        edge = len(self._decided)
        if edge == len(self.choices):
            return []
        tried = self.choices[edge][self._choice]
        return [(*self._decided, tried, *self._most[edge + 1 :])]

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        assert self.best is not None  # noqa: S101 (`tell` has just set it)
        edge = len(self._decided)
        self._choice += 1
        if scores[0] < self.best_score or self._choice == len(self.choices[edge]):
            self._decided.append(self.best[edge])
            self._choice = 0


class BatchedGreedySearchTuner(Tuner):
    """Tries all bits of an edge in one batch, edge by edge; keeps those of the best so far.

    Source: Hago, `BatchedGreedySearchTuner` (December 2020).
    """

    def __init__(self, choices: Choices) -> None:
        super().__init__(choices)
        self._decided: list[int] = []

    @override
    def ask(self) -> list[Bits]:
        edge = len(self._decided)
        if edge == len(self.choices):
            return []
        rest = self._most[edge + 1 :]
        return [(*self._decided, tried, *rest) for tried in self.choices[edge]]

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        assert self.best is not None  # noqa: S101 (`tell` has just set it)
        self._decided.append(self.best[len(self._decided)])


class GreedySquashTuner(Tuner):
    """Removes one bit at one edge after the other, while the score stays near the best.

    It stays at an edge while candidates are accepted, and ends when all edges in a row were
    rejected or have their fewest bits.

    Args:
        choices: The bits of every edge.
        tolerance: How far below the best score an accepted candidate can be.
        most_trials: The most trials.

    Source: Hago, `greedy_squash` (January 2020).
    """

    def __init__(
        self, choices: Choices, tolerance: float = 0.005, most_trials: int = _SQUASH_TRIALS
    ) -> None:
        super().__init__(choices)
        self._tolerance, self._left = tolerance, most_trials
        self._base = self._most
        self._edge = self._refused = 0
        self._asked: Bits | None = self._most

    @property
    def accepted(self) -> Bits:
        """The candidate that was accepted last: the fewest bits within the tolerance."""
        return self._base

    @override
    def ask(self) -> list[Bits]:
        return [] if self._asked is None or not self._left else [self._asked]

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        self._left -= 1
        if self.best_score - scores[0] < self._tolerance:
            self._base, self._refused = candidates[0], 0
        else:
            self._next_edge()
        while self._base[self._edge] == self.choices[self._edge][-1] and not self._is_over:
            self._next_edge()
        self._asked = None if self._is_over else self._one_bit_less()

    @property
    def _is_over(self) -> bool:
        return self._refused >= len(self.choices)

    def _next_edge(self) -> None:
        self._edge = (self._edge + 1) % len(self.choices)
        self._refused += 1

    def _one_bit_less(self) -> Bits:
        edge = self._edge
        fewer = next(one for one in self.choices[edge] if one < self._base[edge])
        return (*self._base[:edge], fewer, *self._base[edge + 1 :])


def _rank(bits: Bits, score: float) -> tuple[float, int]:
    return score, -sum(bits)
