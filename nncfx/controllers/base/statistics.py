"""Statistics of controllers, dataclasses that can be printed as tables or turned into dicts."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from typing_extensions import override

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statistics(abc.ABC):
    """Statistics of what an algorithm has done to a model so far.

    Attributes:
        unread: Weights that the traced forward did not read, which the algorithm ignores.
    """

    unread: tuple[str, ...] = ()

    @abc.abstractmethod
    def to_str(self) -> str:
        """Return a readable table."""

    def to_dict(self) -> dict[str, Any]:
        """Return all values as JSON-compatible data, nested like the dataclass."""
        return dataclasses.asdict(self)

    @override
    def __str__(self) -> str:
        text = self.to_str()
        left = f"left alone, as the traced forward does not read them: {', '.join(self.unread)}"
        return f"{text}\n{left}" if self.unread else text

    def __rich__(self) -> "Group":
        """Return tables for a terminal: the single numbers, then each list of records."""
        from rich.console import Group

        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        lists = {name: value for name, value in values.items() if _is_records(value)}
        single = [
            [name, value] for name, value in values.items() if name not in lists and value != ()
        ]
        parts = [_drawn("", ["", ""], single)] if single else []
        for name, records in lists.items():
            header = [one.name for one in dataclasses.fields(records[0])]
            rows = [[getattr(one, column) for column in header] for one in records]
            parts.append(_drawn(name, header, rows))
        return Group(*parts)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class CompositeStatistics(Statistics):
    """The statistics of several algorithms, by algorithm."""

    parts: Mapping[str, Statistics]

    def __getitem__(self, algorithm: str) -> Statistics:
        return self.parts[algorithm]

    @override
    def to_str(self) -> str:
        blocks = [f"{name}\n{part}" for name, part in self.parts.items()]
        return "\n\n".join(blocks) or "no algorithm"

    @override
    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in self.parts.items()}

    @override
    def __rich__(self) -> "Group":
        from rich.console import Group

        return Group(*(one for name, part in self.parts.items() for one in (name, part)))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return `rows` under `header` as text, with words left-aligned and numbers right-aligned.

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


def _is_records(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and dataclasses.is_dataclass(value[0])


def _drawn(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> "Table":
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(title=title or None, box=box.SIMPLE, show_header=any(header))
    for name, value in zip(header, rows[0], strict=True):
        drawn.add_column(name, justify="right" if isinstance(value, int | float) else "left")
    for row in rows:
        drawn.add_row(*(escape(_cell(value)) for value in row))  # scopes look like markup
    return drawn


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, tuple):
        is_shape = all(isinstance(one, int) for one in value)
        return (" x " if is_shape else ", ").join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)
