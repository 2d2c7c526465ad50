"""What trace_coverage.py finds: a row for each model, kept in a journal, summed up in a table."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nncfx.storage.formats.line_file import json_line, read_lines

__all__ = ["Row", "entered", "table", "told"]


@dataclass
class Row:
    """What one model gave.

    Attributes:
        name: The model.
        operations: Nodes in its graph.
        sites: Hooks that stood in it.
        refused: Sites that nncfx refuses to hook, by function.
        independent: Pairs of input and output without a path, where the output does not change
            with the input either.
        uncompiled: Whether torch does not compile the raw model in one graph.
        seconds: For all of it.
        faults: What is wrong; none is a pass.
    """

    name: str
    operations: int = 0
    sites: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    independent: int = 0
    uncompiled: bool = False
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)


def entered(row: Row, journal: Path) -> None:
    """Append `row` to the journal, as a line of JSON."""
    read_lines(journal).append(json.dumps(vars(row)).encode() + b"\n")


def told(journal: Path) -> dict[str, Row]:
    """Return the rows of a journal by name, the last of each; none of a file that is not there."""
    rows = [Row(**json_line(line)) for line in read_lines(journal).lines]
    return {one.name: one for one in rows}


def table(zoo: str, rows: Sequence[Row]) -> str:
    """Return the summary and the failures as Markdown."""
    passed = sum(not row.faults for row in rows)
    refused: Counter[str] = sum((Counter(row.refused) for row in rows), Counter())
    independent = sum(row.independent for row in rows)
    lines = [
        f"| {zoo} | {passed} of {len(rows)} |",
        f"| operations | {sum(row.operations for row in rows)} |",
        f"| hooks | {sum(row.sites for row in rows)} |",
        f"| sites refused | {refused.total()} |",
        f"| pairs of input and output that are independent | {independent} |",
        f"| raw models that torch does not compile | {sum(row.uncompiled for row in rows)} |",
        *(f"| refused | {name} | {count} |" for name, count in refused.most_common()),
        *(f"| {row.name} | {'; '.join(row.faults)} |" for row in rows if row.faults),
    ]
    return "\n".join(lines) + "\n"
