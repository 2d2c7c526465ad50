"""The adaptive state of the context coder: the odds of decisions and the weights of mixers."""

import functools
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.compiled import IS_COMPILED
from nncfx.storage.context_coding.kernel import (
    AREA,
    AREAS,
    CONTEXTS,
    DECISIONS,
    GRID,
    MIXERS,
    POSITIONS,
    code_tensor,
)
from nncfx.storage.context_coding.layout import IntegerLayout
from nncfx.storage.context_coding.tables import LEVELS, level_odds, tables

_SEEN = 3  # decisions as which the initial odds count
_WEIGHT = 19661  # 0.3 in 65,536ths


class AdaptiveModel:
    """The odds and weights that the tensors of a stream share, in order."""

    def __init__(
        self, odds: NDArray[np.int32] | None = None, mixers: NDArray[np.int32] | None = None
    ) -> None:
        """Start from `odds` and `mixers`; by default, from those of geometric distributions."""
        weights = np.full(4 * DECISIONS * MIXERS, _WEIGHT, dtype=np.int32)
        self.odds = _first_odds().copy() if odds is None else odds
        self.mixers = weights if mixers is None else mixers

    def copy(self) -> Self:
        """Return a copy that learns independently."""
        return type(self)(self.odds.copy(), self.mixers.copy())

    def code(
        self,
        values: NDArray[np.signedinteger[Any]],
        layout: IntegerLayout,
        coder: NDArray[np.int64] | None = None,
        *,
        source: NDArray[np.uint16] | None = None,
        sink: NDArray[np.uint16] | None = None,
    ) -> NDArray[np.int32]:
        """Read, write or price `values`, 1-D in the order of `layout`, and learn from them.

        Args:
            values: The integers; overwritten if there is a source.
            layout: Their layout.
            coder: Low, span, position and fault, for a source or a sink.
            source: Words of the stream to read from.
            sink: Room for words of the stream to write.

        Returns:
            The bits of each integer in 65,536ths; empty if there is a source or a sink.
        """
        is_priced = source is None and sink is None
        prices = np.zeros(values.size if is_priced else 0, dtype=np.int32)
        parts: list[Any] = [
            values,
            layout.numbers(values.dtype),
            self.odds,
            self.mixers,
            np.zeros(2 * layout.columns, dtype=np.int64),
            np.zeros(4, dtype=np.int64) if coder is None else coder,
            source,
            sink,
            prices if is_priced else None,
        ]
        if IS_COMPILED:
            code_tensor(tables(), *parts)
            return prices
        lists: list[Any] = [None if part is None else part.tolist() for part in parts]
        code_tensor(tables(), *lists)
        for part, changed in zip(parts, lists, strict=True):
            if part is not None and part.size and part.flags.writeable:
                part[:] = changed
        return prices


@functools.cache
def _first_odds() -> NDArray[np.int32]:
    start = level_odds()
    levels = np.arange(LEVELS)
    grid = np.add.outer(np.arange(GRID), np.arange(GRID)).reshape(-1)
    unknown = np.full(16 * POSITIONS, 12)
    area = start[np.concatenate([levels, grid, unknown, levels])]
    odds = np.full((CONTEXTS, DECISIONS), 1 << 19, dtype=np.int32)
    for kind in range(AREAS):
        rows = odds[kind * AREA : (kind + 1) * AREA]
        rows[:, 0] = area[:, 0]
        rows[:, 1:] = area[:, 1:]
    return (odds << 8 | _SEEN).reshape(-1)
