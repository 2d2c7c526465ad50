"""Where the training of a row of a table stands: a killed run goes on to the same bits."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch

SAVE_SECONDS: Final = 30.0
"""How often a training is written down."""


class HasState(Protocol):
    """What keeps a state: a model, an optimizer, a schedule."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        """Take up a state."""


class TrainingCheckpoint:
    """A file beside a journal: one training, of the row that it names.

    Attributes:
        facts: What was known of the row before its training; empty if none is begun.
        step: How many steps are done.
    """

    def __init__(self, journal: Path | None, row: Mapping[str, Any]) -> None:
        """Read the file, if there is one and it is of this row."""
        name = f".{row['network']}.{row['importance']}.training"
        self._path = None if journal is None else journal.with_name(journal.stem + name)
        self._row, self._saved = json.dumps(row, sort_keys=True), time.monotonic()
        self._read: dict[str, Any] = {}
        if self._path is not None and self._path.exists():
            found = torch.load(self._path, map_location="cpu", weights_only=True)
            self._read = found if found["row"] == self._row else {}
        self.facts: dict[str, Any] = self._read.get("facts", {})
        self.step: int = self._read.get("step", 0)

    def restore(self, parts: Mapping[str, HasState], generator: torch.Generator) -> None:
        """Give every part, and the generator, the state of the file, if a training is begun."""
        if self._read:
            for name, part in parts.items():
                part.load_state_dict(self._read["parts"][name])
            generator.set_state(self._read["generator"])

    def save(self, step: int, parts: Mapping[str, HasState], generator: torch.Generator) -> None:
        """Write the training down if the last time is long ago; a kill cannot tear the file."""
        if self._path is None or time.monotonic() - self._saved < SAVE_SECONDS:
            return
        content = {
            "row": self._row,
            "facts": self.facts,
            "step": step,
            "parts": {name: part.state_dict() for name, part in parts.items()},
            "generator": generator.get_state(),
        }
        beside = self._path.with_suffix(".writing")
        torch.save(content, beside)
        beside.replace(self._path)
        self._saved = time.monotonic()

    def discard(self) -> None:
        """Take the file away: the row is in the journal."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
