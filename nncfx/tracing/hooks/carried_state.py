"""Plain values that travel with a model's `state_dict`: how far a schedule has come."""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol, final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import NNCFXError, StorageError
from nncfx.untrusted import read_json

CARRIED: Final = "_extra_state"
"""The last part of the keys; torch's own name for state that is no parameter and no buffer."""

_LEAST: Final = 1024
_SPACE: Final = ord(" ")


class StateOwner(Protocol):
    """What has a state of plain values, such as a controller."""

    def state_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take what `state_dict` returned."""


@final
class CarriedState:
    """The state of an owner, as a tensor: files of weights hold nothing else.

    A copy of the model has no owner, since its owner moves the original: it carries a blank, so
    that what pairs the values of two `state_dict`s, as timm's averages do, finds as many.

    Attributes:
        owner: Whose state it is; None in a copy.
        is_behind: Whether tensors of other values were loaded that came without a state.
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

        n changes as rarely as may be: some averages of weights copy state by state.
        """
        text = b""
        if self.owner is not None:
            text = json.dumps(self.owner.state_dict(), separators=(",", ":")).encode()
        while self._bytes < len(text):
            self._bytes *= 2
        return torch.tensor(list(text.ljust(self._bytes)), dtype=torch.uint8, device="cpu")

    @staticmethod
    def is_blank(value: object) -> bool:
        """Return whether a tensor, `value`, is one of a copy."""
        return isinstance(value, Tensor) and value.numel() > 0 and bool((value == _SPACE).all())

    def take(self, value: object) -> None:
        """Give the owner the state that `value` holds; without an owner do nothing.

        Raises:
            StorageError: it is none, or not one of this owner.
        """
        if self.owner is None:
            return
        mend = (
            "Build the model with the config of the one that was saved; to load its tensors alone "
            f"and begin a schedule again, leave out of the state what ends in '{CARRIED}'."
        )
        try:
            state: Any = read_json(bytes(_numbers(value)))
            self.owner.load_state_dict(state)
        except NNCFXError as error:
            raise StorageError(f"{error} {mend}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise StorageError(f"The state of a schedule is damaged ({error}). {mend}") from error
        self.is_behind = False


def _numbers(value: object) -> list[int]:
    if not isinstance(value, Tensor) or value.dtype != torch.uint8 or value.ndim != 1:
        raise TypeError("it is not a row of bytes")
    return [int(one) for one in value.tolist()]
