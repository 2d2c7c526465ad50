"""The weights of each trial, kept until the search has chosen one."""

from pathlib import Path
from typing import final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nncfx.errors import SearchError

__all__ = ["TrialStates"]


@final
class TrialStates:
    """State dicts by level: files in a folder, or in memory when there is no folder.

    A search that resumes finds the weights of its finished trials here. Files are safetensors,
    so that reading them executes nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[float, dict[str, torch.Tensor]] = {}

    def save(self, level: float, state: dict[str, torch.Tensor]) -> None:
        """Keep `state` as the weights of the trial at `level`."""
        # A clone each: safetensors refuses tensors that share memory.
        tensors = {name: value.detach().cpu().clone() for name, value in state.items()}
        if self._folder is None:
            self._memory[level] = tensors
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(self._folder, level)
        temporary = path.with_suffix(".part")
        save_file({name: value.contiguous() for name, value in tensors.items()}, temporary)
        temporary.replace(path)

    def load(self, level: float) -> dict[str, torch.Tensor]:
        """Return the weights of the trial at `level`.

        Raises:
            SearchError: there are none, or their file is damaged.
        """
        if self._folder is None:
            if level in self._memory:
                return self._memory[level]
            raise SearchError(f"No weights are kept for level {level}; run its trial first.")
        path = self._path(self._folder, level)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise SearchError(
                f"The weights of the trial at level {level} cannot be read from {path} "
                f"({error}), though the journal lists the trial. Delete {self._folder.parent} "
                "to search again.",
            ) from error

    @staticmethod
    def _path(folder: Path, level: float) -> Path:
        return folder / f"level-{level!r}.safetensors"
