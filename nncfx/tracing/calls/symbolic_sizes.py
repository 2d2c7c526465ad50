"""Integers that remember which attribute of which module they are, or which axis's width."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph.union_find import Ids
from nncfx.tracing.calls.module_walk import all_modules

_CACHES: Final = {"einops.einops": "_reconstruct_from_shape"}
"""By module, a cached function that computes sizes of sizes. An integer with a name equals one
without: the cache loses the name where it knows the sizes, and keeps it for later calls else."""


class _Knowing(int):
    """An integer that knows more than its value; it is copied and pickled as a plain one."""

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return (int, (int(self),))


class Countable(_Knowing):
    """An integer that tells when code computes with it as with any number."""

    def used(self) -> int:
        """Return the plain integer, with which code computes."""
        return int(self)

    @override
    def __float__(self) -> float:
        """Return the number, as `math.sqrt` asks for it."""
        return float(self.used())

    @override
    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        """Return the power, a number like any other."""
        return pow(self.used(), other, modulo)

    @override
    def __truediv__(self, other: Any) -> Any:
        """Return the quotient, a number like any other."""
        return self.used() / other

    @override
    def __rtruediv__(self, other: Any) -> Any:
        """Return the quotient, a number like any other."""
        return other / self.used()


class NamedInteger(Countable):
    """An integer that a module keeps, or one that its code has divided.

    Attributes:
        module: dotted name of the module.
        attribute: the attribute's name.
        whole: the attribute's value.
        computed: is told if code computes with it as with any number.
    """

    module: str
    attribute: str
    whole: int
    computed: Callable[["NamedInteger"], None]

    @classmethod
    def named(
        cls,
        value: int,
        module: str,
        attribute: str,
        whole: int,
        computed: Callable[["NamedInteger"], None] = lambda _: None,
    ) -> "NamedInteger":
        """Return `value` with a name."""
        made = cls(value)
        made.module, made.attribute, made.whole = module, attribute, whole
        made.computed = computed
        return made

    @override
    def used(self) -> int:
        self.computed(self)
        return int(self)

    @override
    def __floordiv__(self, other: Any) -> Any:
        """Return the quotient; it keeps the name if it is an integer."""
        value = int(self) // other
        if type(value) is not int:
            return value
        return NamedInteger.named(value, self.module, self.attribute, self.whole, self.computed)


class WeightSize(_Knowing):
    """The size of a weight, which its module keeps beside it: it falls with the weight."""


class ComputedSize(_Knowing):
    """A product of which a factor is the width of an axis of channels: it falls with that."""

    @override
    def __mul__(self, other: Any) -> Any:
        """Return the product."""
        value = int(self) * other
        return ComputedSize(value) if type(value) is int else value

    __rmul__ = __mul__


class NamedSize(Countable):
    """The width of an axis along which channels lie, or that width divided by an integer.

    Attributes:
        ids: the channels along the axis.
        computed: is told the channels if code computes with the width as with any number.
        is_rest: whether it is that width divided by a number that does not fall.
    """

    ids: Ids
    computed: Callable[[Ids], None]
    is_rest: bool = False

    @classmethod
    def named(cls, value: int, ids: Ids, computed: Callable[[Ids], None]) -> "NamedSize":
        """Return `value` with the channels that it counts."""
        made = cls(value)
        made.ids, made.computed = ids, computed
        return made

    @override
    def __floordiv__(self, other: Any) -> Any:
        """Return the quotient; it keeps the channels if it leaves no rest."""
        value = int(self) // other
        if type(value) is not int or value * other != int(self):
            return value
        # by a number of heads, say, that falls with the width: it stays what it is
        is_constant = isinstance(other, NamedInteger)
        made = NamedSize.named(value, self.ids, _ignored if is_constant else self.computed)
        made.is_rest = not is_constant and value != int(self)
        return made

    @override
    def used(self) -> int:
        self.computed(self.ids)
        return int(self)

    @override
    def __mul__(self, other: Any) -> Any:
        """Return the product, which falls with the width."""
        if not isinstance(other, int):
            self.used()
        return ComputedSize(int(self)) * other

    __rmul__ = __mul__


def _ignored(_: Ids) -> None:
    """Do nothing: the value does not change."""


def named_size(
    size: torch.Size, axis: int, ids: Ids, computed: Callable[[Ids], None]
) -> torch.Size:
    """Return a shape whose entry `axis` counts the channels `ids`."""
    width = NamedSize.named(size[axis], ids, computed)
    return torch.Size([width if a == axis else n for a, n in enumerate(size)])


@contextmanager
def named_integers(
    model: nn.Module, computed: Callable[[NamedInteger], None] = lambda _: None
) -> Iterator[None]:
    """Let the integers of all modules of `model` be `NamedInteger`s, and put them back.

    The shapes that norms with weights keep are of `WeightSize`s.

    Args:
        model: any module.
        computed: is told when code computes with one as with any number.
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
        vars(module)[key] = NamedInteger.named(value, name, key, value, computed)
    try:
        with _without_caches():
            yield
    finally:
        for module, _, key, value in plain:
            vars(module)[key] = value
        for norm, shape in norms:
            norm.normalized_shape = shape


@contextmanager
def _without_caches() -> Iterator[None]:
    """Let libraries that are imported compute sizes again in each call."""
    cached = [
        (module, name, vars(module)[name])
        for module, name in ((sys.modules.get(one), name) for one, name in _CACHES.items())
        if module is not None and hasattr(vars(module).get(name), "__wrapped__")
    ]
    for module, name, function in cached:
        setattr(module, name, function.__wrapped__)
    try:
        yield
    finally:
        for module, name, function in cached:
            setattr(module, name, function)
