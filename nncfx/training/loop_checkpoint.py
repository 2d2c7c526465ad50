"""The file of an unfinished training: everything that the next step depends on, bit by bit."""

import dataclasses
import random
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, final

import numpy as np
import torch
from torch.utils.serialization import config as serialization

from nncfx.errors import StorageError, error_text, machine_fault
from nncfx.json_codec import is_default
from nncfx.storage.formats.whole_file import check_writable, writing

_FORMAT: Final = "nncfx.training"
_VERSION: Final = 1


class HasState(Protocol):
    """An object with a state: a model, an optimizer, a controller."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state_dict: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        """Restore a state."""


def settings_text(value: object, place: str = "") -> str:
    """Return a line for each setting in `value` that is not at its default.

    Omitting defaults lets a training continue under a later version, which has more settings.

    >>> from nncfx.training import Recipe
    >>> print(settings_text((Recipe(steps=9, momentum=0.9),)))
    [0] = Recipe
    [0].steps = 9
    """
    if isinstance(value, tuple | list):
        lines = [settings_text(one, f"{place}[{n}]") for n, one in enumerate(value)]
        return "\n".join(lines) or f"{place} = []"
    if not dataclasses.is_dataclass(value):
        return f"{place} = {value!r}"
    given = {one: getattr(value, one.name) for one in dataclasses.fields(value)}
    lines = [
        settings_text(setting, f"{place}.{field.name}")
        for field, setting in given.items()
        if not is_default(field, setting)
    ]
    # the class of a field value is known from the enclosing class
    kind = [] if "." in place else [f"{place} = {type(value).__name__}"]
    return "\n".join(kind + lines)


def _numpy_state() -> tuple[str, list[int], int, int, float]:
    """Return the state of numpy's global generator, with the key as a list for any file format."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002 (used by user augmentations)
    return (str(name), key.tolist(), *rest)  # type: ignore[attr-defined]


def _difference(before: str, now: str) -> str:
    """Return the first lines of two texts that are missing in the other."""
    lines, others = before.splitlines(), now.splitlines()
    was = next((repr(one) for one in lines if one not in others), "its default")
    is_ = next((repr(one) for one in others if one not in lines), "its default")
    return f"it had {was}, and now there is {is_}"


def _restore_generators(content: Mapping[str, Any]) -> None:
    torch.set_rng_state(content["generator"])
    if content["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(content["cuda"])
    if "python" in content:  # files of 0.1 only have torch's state
        random.setstate(content["python"])
        np.random.set_state(content["numpy"])  # noqa: NPY002


def _check_sums(path: Path) -> None:
    """Refuse a damaged torch file, since torch itself does not verify checksums.

    Raises:
        BadZipFile: it is damaged.
    """
    with zipfile.ZipFile(path) as records:
        damaged = records.testzip()
    if damaged is not None:
        raise zipfile.BadZipFile(f"its part '{damaged}' is damaged")


@final
class TrainingFile:
    """Writes and reads the states of a training's parts and of the random generators.

    The generators are torch's, numpy's global one and Python's.

    The file is written completely or not at all; reading it executes no code.

    Args:
        path: The file; None: nothing is ever written.
        identity: Text that identifies the training: the file of another one is refused.
    """

    def __init__(self, path: Path | None, identity: str) -> None:
        self._path = path
        self._identity = identity

    def check(self) -> None:
        """Check before hours of training that `save` can write.

        Raises:
            StorageError: it cannot.
        """
        if self._path is not None:
            check_writable(self._path)

    def save(self, step: int, parts: Mapping[str, HasState]) -> None:
        """Write the states of `parts` after `step` steps.

        Raises:
            StorageError: the file cannot be written.
        """
        if self._path is None:
            return
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "identity": self._identity,
            "step": step,
            "parts": {name: part.state_dict() for name, part in parts.items()},
            "generator": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
            "python": random.getstate(),
            "numpy": _numpy_state(),
        }
        with (
            serialization.patch("save.compute_crc32", True),  # type: ignore[attr-defined]  # made at run time
            writing(self._path) as draft,
            draft.open("wb") as file,
        ):
            try:
                torch.save(content, file)
            except RuntimeError as error:  # raised by torch when the disk does not accept bytes
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from None
                raise

    def restore(self, parts: Mapping[str, HasState]) -> int:
        """Restore the states of `parts` and of the generators; return the number of steps done.

        Without a file nothing happens, and 0 is returned.

        Raises:
            StorageError: the file is damaged, of another version, or of another training or model;
                some parts may already be restored then.
        """
        if self._path is None or not self._path.exists():
            return 0
        content = self._read(self._path)
        written = content["parts"]
        if set(written) != set(parts):
            raise StorageError(
                f"'{self._path}' holds the states of {', '.join(sorted(written))}, not of "
                f"{', '.join(sorted(parts))}. Pass the same parts as before, or delete it to "
                "train from the beginning."
            )
        for name, part in parts.items():
            try:
                part.load_state_dict(written[name])
            except (LookupError, TypeError, ValueError, RuntimeError) as error:
                first = error_text(error).partition("\n\t")[0].rstrip(": ")
                others = "model" if name == "model" else f"{name} or model"
                raise StorageError(
                    f"The {name} in '{self._path}' does not fit ({first}). It was written for "
                    f"another {others}, or by another version of nncfx; delete it to train from "
                    "the beginning."
                ) from error
        try:
            _restore_generators(content)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise StorageError(
                f"The random generators in '{self._path}' cannot be restored: {error}. Delete it "
                "to train from the beginning."
            ) from error
        return int(content["step"])

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            _check_sums(path)
            content = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            if machine_fault(error) is not None and not isinstance(error, OSError):
                raise
            raise StorageError(
                f"'{path}' cannot be read as an unfinished training: {error_text(error)}. Delete "
                "it to train from the beginning."
            ) from error
        found = content.get("format") if isinstance(content, dict) else None
        if found != _FORMAT or content.get("version") != _VERSION:
            raise StorageError(
                f"'{path}' is not an unfinished training that this version reads. Delete it to "
                "train from the beginning."
            )
        if content["identity"] != self._identity:
            difference = _difference(content["identity"], self._identity)
            raise StorageError(
                f"'{path}' belongs to another training: {difference}. Use another file, or "
                "delete it to train from the beginning."
            )
        return dict(content)
