"""The weights of each trial, kept until the search has chosen one."""

from pathlib import Path
from typing import final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from nncfx.errors import SearchError
from nncfx.storage.whole_file import writing

__all__ = ["TrialStates"]


@final
class TrialStates:
    """State dicts by name: files in a folder, or in memory when there is no folder.

    A search that resumes finds the weights of its finished trials here. Files are safetensors,
    so that reading them executes nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, dict[str, torch.Tensor]] = {}

    def save(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """Keep `state` under `name`, such as "level-0.5"."""
        # A clone each: safetensors refuses tensors that share memory.
        tensors = {key: value.detach().cpu().clone() for key, value in state.items()}
        if self._folder is None:
            self._memory[name] = tensors
            return
        with writing(self._path(self._folder, name)) as draft:
            save_file({key: value.contiguous() for key, value in tensors.items()}, draft)

    def load(self, name: str) -> dict[str, torch.Tensor]:
        """Return the weights that were kept under `name`.

        Raises:
            SearchError: there are none, or their file is damaged.
        """
        if self._folder is None:
            if name in self._memory:
                return self._memory[name]
            raise SearchError(f"No weights '{name}' are kept; run their trial first.")
        path = self._path(self._folder, name)
        try:
            return load_file(path)
        except (OSError, SafetensorError) as error:
            raise SearchError(
                f"The weights '{name}' of a trial cannot be read from {path} "
                f"({error}), though the journal lists the trial. Delete {self._folder.parent} "
                "to search again.",
            ) from error

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.safetensors"
