"""`TensorTable`, a table keyed by tensors that does not keep them alive."""

from typing import Final, Generic, TypeVar
from weakref import ref

import torch

_FIRST_SWEEP: Final = 1024

V = TypeVar("V")


class TensorTable(Generic[V]):
    """Values by identity of a tensor; entries of dead tensors are dropped now and then.

    `torch.utils.weak.WeakIdKeyDictionary` does the same, but is slower: it calls Python several
    times for each look-up, and a trace makes several look-ups per operation.

    >>> table = TensorTable[str]()
    >>> one = torch.zeros(2)
    >>> table[one] = "first"
    >>> table.get(one), table.get(torch.zeros(2)), one in table
    ('first', None, True)
    """

    def __init__(self) -> None:
        """Create an empty table."""
        self._entries: dict[int, tuple[ref[torch.Tensor], V]] = {}
        self._limit = _FIRST_SWEEP

    def get(self, tensor: torch.Tensor) -> V | None:
        """Return the value of a tensor; None if it has no value."""
        entry = self._entries.get(id(tensor))
        # a new tensor can have the id of a dead one
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def __contains__(self, tensor: torch.Tensor) -> bool:
        entry = self._entries.get(id(tensor))
        return entry is not None and entry[0]() is tensor

    def __setitem__(self, tensor: torch.Tensor, value: V) -> None:
        entries = self._entries
        entries[id(tensor)] = (ref(tensor), value)
        if len(entries) > self._limit:
            self._entries = {key: one for key, one in entries.items() if one[0]() is not None}
            self._limit = max(_FIRST_SWEEP, 2 * len(self._entries))

    def __len__(self) -> int:
        """Return the number of entries, perhaps including dead tensors."""
        return len(self._entries)

    def __bool__(self) -> bool:
        return bool(self._entries)
