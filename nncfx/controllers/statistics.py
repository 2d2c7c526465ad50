"""Statistics of controllers: dataclasses that print as tables and turn into dicts."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, final

from typing_extensions import override

__all__ = ["CompositeStatistics", "Statistics", "table"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics(abc.ABC):
    """What an algorithm has done to a model so far."""

    @abc.abstractmethod
    def to_str(self) -> str:
        """Return a table to read."""

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain values, nested as the dataclass is."""
        return dataclasses.asdict(self)

    @override
    def __str__(self) -> str:
        return self.to_str()


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class CompositeStatistics(Statistics):
    """The statistics of several algorithms, by algorithm."""

    parts: Mapping[str, Statistics]

    def __getitem__(self, algorithm: str) -> Statistics:
        return self.parts[algorithm]

    @override
    def to_str(self) -> str:
        blocks = [f"{name}\n{part.to_str()}" for name, part in self.parts.items()]
        return "\n\n".join(blocks) or "no algorithm"

    @override
    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in self.parts.items()}


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return `rows` under `header` as text, words to the left and numbers to the right.

    >>> print(table(["layer", "level"], [["conv", 0.5]]))
    layer  level
    conv   0.500
    """
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    right = [bool(rows) and not isinstance(value, str) for value in (rows[0] if rows else header)]
    lines = []
    for row in cells:
        parts = zip(row, widths, right, strict=True)
        aligned = [cell.rjust(w) if is_right else cell.ljust(w) for cell, w, is_right in parts]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
