"""Searches bits by Bayesian optimisation in a trust region."""

import random
from collections.abc import Sequence

from typing_extensions import override

from nncfx.hago.search.tuners import Bits, Tuner
from nncfx.hago.strategy.choice_space import Choices
from nncfx.search import TrustRegion, next_in_trust_region


class BayesianTuner(Tuner):
    """A Gaussian process over the bits of all edges that have a choice, in a trust region.

    Starts with the most bits, then draws each edge from its upper or its lower choices.

    Args:
        choices: The bits of every edge.
        trials: Number of trials.
        initial: Number of trials drawn before the Gaussian process is used.
        seed: Of all random numbers.
    """

    def __init__(
        self, choices: Choices, trials: int = 200, initial: int = 20, seed: int = 0
    ) -> None:
        super().__init__(choices)
        self._trials, self._initial, self._seed = trials, initial, seed
        self._free = [edge for edge, each in enumerate(choices) if len(each) > 1]
        self._random = random.Random(seed)  # noqa: S311 (a search, not a secret)
        self._region = TrustRegion()
        self._points: list[list[float]] = []
        self._scores: list[float] = []
        self._asked: Bits | None = self._most

    @override
    def ask(self) -> list[Bits]:
        if self._asked is None and len(self._scores) < self._trials:
            self._asked = self._next()
        return [] if self._asked is None else [self._asked]

    @override
    def _told(self, candidates: Sequence[Bits], scores: Sequence[float]) -> None:
        [bits], [score] = candidates, scores
        if len(self._scores) >= self._initial:
            improved = score > max(self._scores)
            self._region = self._region.after(
                improved=improved, patience=max(len(self._free) // 10, 4)
            )
        self._points.append([self._place(edge, bits[edge]) for edge in self._free])
        self._scores.append(score)
        self._asked = None

    def _next(self) -> Bits | None:
        if not self._free:
            return None
        if len(self._scores) < self._initial:
            share = self._random.random()
            return tuple(self._drawn(each, share) for each in self.choices)
        seed = self._seed + len(self._scores)
        point = next_in_trust_region(self._points, self._scores, self._region, seed)
        bits = list(self._most)
        for edge, value in zip(self._free, point, strict=True):
            each = self.choices[edge]
            bits[edge] = each[round((1 - value) * (len(each) - 1))]
        return tuple(bits)

    def _place(self, edge: int, bits: int) -> float:
        """Return the bits as a number in [0, 1], 1 for the most."""
        each = self.choices[edge]
        return 1 - each.index(bits) / (len(each) - 1)

    def _drawn(self, each: tuple[int, ...], share: float) -> int:
        half = (len(each) + 1) // 2
        return self._random.choice(each[:half] if self._random.random() < share else each[-half:])
