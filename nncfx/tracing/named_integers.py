"""Integers that remember which attribute of which module they are, or which axis's width."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph.union_find import Ids
from nncfx.tracing.module_walk import all_modules

__all__ = [
    "ComputedSize",
    "NamedInteger",
    "NamedSize",
    "WeightSize",
    "named_integers",
    "named_size",
]


class NamedInteger(int):
    """An integer that a module keeps, or one that its code has divided.

    Attributes:
        module: dotted name of the module.
        attribute: the attribute's name.
        whole: the attribute's value.
    """

    module: str
    attribute: str
    whole: int

    @classmethod
    def named(cls, value: int, module: str, attribute: str, whole: int) -> "NamedInteger":
        """Return `value` with a name."""
        made = cls(value)
        made.module, made.attribute, made.whole = module, attribute, whole
        return made

    @override
    def __floordiv__(self, other: Any) -> Any:
        """Return the quotient; it keeps the name if it is an integer."""
        value = int(self) // other
        if type(value) is not int:
            return value
        return NamedInteger.named(value, self.module, self.attribute, self.whole)

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copy and pickle as a plain integer."""
        return (int, (int(self),))


class WeightSize(int):
    """The size of a weight, which its module keeps beside it: it falls with the weight."""

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copy and pickle as a plain integer."""
        return (int, (int(self),))


class ComputedSize(int):
    """A product of which a factor is the width of an axis of channels: it falls with that."""

    @override
    def __mul__(self, other: Any) -> Any:
        """Return the product."""
        value = int(self) * other
        return ComputedSize(value) if type(value) is int else value

    __rmul__ = __mul__

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copy and pickle as a plain integer."""
        return (int, (int(self),))


class NamedSize(int):
    """The width of an axis along which channels lie, or that width divided by an integer.

    Attributes:
        ids: the channels along the axis.
    """

    ids: Ids

    @classmethod
    def named(cls, value: int, ids: Ids) -> "NamedSize":
        """Return `value` with the channels that it counts."""
        made = cls(value)
        made.ids = ids
        return made

    @override
    def __floordiv__(self, other: Any) -> Any:
        """Return the quotient; it keeps the channels if it leaves no rest."""
        value = int(self) // other
        if type(value) is not int or value * other != int(self):
            return value
        return NamedSize.named(value, self.ids)

    @override
    def __mul__(self, other: Any) -> Any:
        """Return the product, which falls with the width."""
        return ComputedSize(int(self)) * other

    __rmul__ = __mul__

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copy and pickle as a plain integer."""
        return (int, (int(self),))


def named_size(size: torch.Size, axis: int, ids: Ids) -> torch.Size:
    """Return a shape whose entry `axis` counts the channels `ids`."""
    return torch.Size([NamedSize.named(n, ids) if a == axis else n for a, n in enumerate(size)])


@contextmanager
def named_integers(model: nn.Module) -> Iterator[None]:
    """Let the integers of all modules of `model` be `NamedInteger`s, and put them back.

    The shapes that norms with weights keep are of `WeightSize`s.
    """
    modules = all_modules(model)
    plain = [
        (module, name, key, value)
        for name, module in modules
        for key, value in vars(module).items()
        if type(value) is int
    ]
    norms = [
        (module, module.normalized_shape)
        for _, module in modules
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) and module.weight is not None
    ]
    for norm, shape in norms:
        norm.normalized_shape = tuple(map(WeightSize, shape))
    for module, name, key, value in plain:
        vars(module)[key] = NamedInteger.named(value, name, key, value)
    try:
        yield
    finally:
        for module, _, key, value in plain:
            vars(module)[key] = value
        for norm, shape in norms:
            norm.normalized_shape = shape
