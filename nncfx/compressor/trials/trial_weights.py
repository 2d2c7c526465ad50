"""The weights of each trial, kept until the search has made its choice."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from nncfx.errors import SearchError, machine_fault
from nncfx.search import JSONValue
from nncfx.storage.formats.whole_file import writing

_DIGEST: Final = "sha256"


@final
class TrialStates:
    """State dicts by name: files in a folder, or in memory when there is no folder.

    A resumed search finds the weights of its finished trials here. Files are in safetensors
    format, so reading them executes no code.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, dict[str, torch.Tensor]] = {}

    def save(self, name: str, state: dict[str, torch.Tensor]) -> None:
        """Save `state` under `name`, such as "level-0.5"."""
        # Cloned, because safetensors rejects tensors that share memory.
        tensors = {key: value.detach().cpu().clone() for key, value in state.items()}
        if self._folder is None:
            self._memory[name] = tensors
            return
        whole = {key: value.contiguous() for key, value in tensors.items()}
        with writing(self._path(self._folder, name)) as draft:
            save_file(whole, draft, {_DIGEST: _digest(whole)})

    def load(self, name: str) -> dict[str, torch.Tensor]:
        """Return the weights saved under `name`.

        Raises:
            SearchError: there are none, or their file is damaged.
            OSError: the file exists and cannot be read.
        """
        if self._folder is None:
            if name in self._memory:
                return self._memory[name]
            raise SearchError(f"No weights '{name}' are kept; run their trial first.")
        path = self._path(self._folder, name)
        try:
            with safe_open(path, framework="pt") as file:
                written = (file.metadata() or {}).get(_DIGEST)
                state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no mapping)
        except (FileNotFoundError, SafetensorError) as error:
            if machine_fault(error) is not None and not isinstance(error, FileNotFoundError):
                raise
            raise _lost(name, path, str(error)) from error
        # files of nncfx 0.1 have no digest
        if written is not None and written != _digest(state):
            raise _lost(name, path, "its bytes are not those that were written")
        return state

    @staticmethod
    def _path(folder: Path, name: str) -> Path:
        return folder / f"{name}.safetensors"


def _digest(state: Mapping[str, torch.Tensor]) -> str:
    digest = hashlib.sha256()
    for key, value in sorted(state.items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _lost(name: str, path: Path, reason: str) -> SearchError:
    return SearchError(
        f"The weights '{name}' of a trial cannot be read from {path} ({reason}), though the "
        "journal lists the trial. A compressor compresses to them again."
    )


def digest(header: Mapping[str, JSONValue]) -> str:
    """Return eight characters that differ for different headers."""
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()[:8]
