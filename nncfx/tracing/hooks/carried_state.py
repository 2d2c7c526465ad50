"""Plain values saved in a model's `state_dict`, such as the progress of a schedule."""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import NNCFXError, StorageError
from nncfx.untrusted import read_json

CARRIED: Final = "_extra_state"
"""Last part of the keys; torch's name for state that is neither parameter nor buffer."""

_LEAST: Final = 1024
_SPACE: Final = ord(" ")


class StateOwner(Protocol):
    """An object with a state of plain values, such as a controller."""

    def state_dict(self) -> dict[str, Any]:
        """Return a state that JSON can represent."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


@final
class CarriedState:
    """The state of an owner as a tensor, since files of weights hold only tensors.

    A copy of the model has no owner, since the owner controls the original. It saves a blank
    state, so code that pairs the values of two `state_dict`s, such as timm's averages, works.

    Attributes:
        owner: The object whose state it is; None in a copy.
        is_behind: Whether tensors of other values were loaded without a state.
    """

    def __init__(self, owner: StateOwner) -> None:
        self.owner: StateOwner | None = owner
        self.is_behind = False
        self._bytes = _LEAST

    @override
    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"owner": None, "is_behind": False}

    def tensor(self) -> Tensor:
        """Return the state as JSON in bytes (uint8, n), all spaces without an owner.

        n changes as rarely as possible, because some averages of weights copy state by state.
        """
        text = b""
        if self.owner is not None:
            text = json.dumps(self.owner.state_dict(), separators=(",", ":")).encode()
        while self._bytes < len(text):
            self._bytes *= 2
        return torch.tensor(list(text.ljust(self._bytes)), dtype=torch.uint8, device="cpu")

    @staticmethod
    def is_blank(value: object) -> bool:
        """Return whether `value` is the blank tensor of a copy."""
        return isinstance(value, Tensor) and value.numel() > 0 and bool((value == _SPACE).all())

    def take(self, value: object) -> None:
        """Load the state in `value` into the owner; without an owner, do nothing.

        Raises:
            StorageError: `value` is not a state, or not a state of this owner.
        """
        if self.owner is None:
            return
        fix = (
            "Build the model with the config of the one that was saved; to load its tensors alone "
            f"and begin a schedule again, leave out of the state what ends in '{CARRIED}'."
        )
        try:
            state: Any = read_json(bytes(_numbers(value)))
            self.owner.load_state_dict(state)
        except NNCFXError as error:
            raise StorageError(f"{error} {fix}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"The state of a schedule is damaged ({error}). {fix}") from error
        self.is_behind = False


def _numbers(value: object) -> list[int]:
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.ndim != 1:
        raise TypeError("it is not a row of bytes")
    return [int(one) for one in value.tolist()]
