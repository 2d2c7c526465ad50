"""`Source`, which says from which parameter the elements of a tensor come."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch


@dataclass(frozen=True, eq=False)
class Source:
    """The origin of a tensor whose elements are those of one parameter, moved or changed singly.

    Attributes:
        parameter: name of the parameter or buffer.
        shape: shape of the parameter.
        moved: indices into the flattened parameter, in the shape of the tensor; None if the
            elements are in the parameter's layout.
    """

    parameter: str
    shape: tuple[int, ...]
    moved: torch.Tensor | None = None

    @cached_property
    def elements(self) -> torch.Tensor:
        """Indices into the flattened parameter, in the shape of the tensor."""
        # created only when needed, because there are as many as the parameter has elements
        if self.moved is not None:
            return self.moved
        return torch.arange(math.prod(self.shape), device="cpu").view(self.shape)

    @property
    def block(self) -> tuple[range, range] | None:
        """The ranges of rows and columns of a parameter `o x i x *k` that the tensor holds.

        None if it does not hold exactly all elements of such ranges in order.
        """
        elements = self.elements
        if elements.dim() != len(self.shape) or elements.dim() < 2 or not elements.numel():  # noqa: PLR2004
            return None
        inner = math.prod(self.shape[1:])
        row, rest = divmod(int(elements.reshape(-1)[0]), inner)
        column = rest // math.prod(self.shape[2:])
        rows, columns = range(row, row + len(elements)), range(column, column + elements.shape[1])
        every = torch.arange(math.prod(self.shape), device="cpu").view(self.shape)
        held = every[row : rows.stop, column : columns.stop]
        return (rows, columns) if torch.equal(held, elements) else None

    @property
    def is_whole(self) -> bool:
        """Whether the tensor has the parameter's own layout."""
        if self.moved is None:
            return True
        return tuple(self.elements.shape) == self.shape and first_of_run(self.elements) == 0


def first_of_run(elements: torch.Tensor) -> int | None:
    """Return the first of consecutive elements, 0 if there are none; None if not consecutive."""
    flat = elements.reshape(-1)
    first, count = int(flat[0]) if len(flat) else 0, len(flat)
    follow = (flat == torch.arange(first, first + count, device="cpu")).all()
    return first if follow else None


def is_stack(elements: torch.Tensor, shape: tuple[int, ...]) -> bool:
    """Return whether elements are whole matrices, in order, of a tensor of `shape`."""
    if tuple(elements.shape[-2:]) != shape[-2:] or not elements.numel():
        return False
    rows = elements.reshape(-1, shape[-2] * shape[-1])
    first, inner = rows[:, :1], torch.arange(rows.shape[1], device="cpu")
    return bool((rows - first == inner).all() and (first % rows.shape[1] == 0).all())
