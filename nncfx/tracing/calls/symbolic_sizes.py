"""Integers that remember the module attribute or the axis they come from."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph.union_find import Ids
from nncfx.storage.models.module_walk import all_modules

_CACHES: Final = {"einops.einops": "_reconstruct_from_shape"}
"""Cached functions by module that compute sizes from sizes. A named integer equals a plain one, so
such a cache can lose the name, or return it in later calls."""


class _Knowing(int):
    """An integer with further information; it is copied and pickled as a plain integer."""

    @override
    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return (int, (int(self),))


class Countable(_Knowing):
    """An integer that reports when code computes with it as with a plain number."""

    def used(self) -> int:
        """Return the plain integer, and report its use."""
        return int(self)

    @override
    def __float__(self) -> float:
        """Return the plain number, for instance for `math.sqrt`."""
        return float(self.used())

    @override
    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        """Return the power as a plain number."""
        return pow(self.used(), other, modulo)

    @override
    def __truediv__(self, other: Any) -> Any:
        """Return the quotient as a plain number."""
        return self.used() / other

    @override
    def __rtruediv__(self, other: Any) -> Any:
        """Return the quotient as a plain number."""
        return other / self.used()


class NamedInteger(Countable):
    """An integer attribute of a module, or a quotient of one.

    Attributes:
        module: dotted name of the module.
        attribute: the attribute's name.
        whole: the attribute's value.
        computed: called if code computes with it as with a plain number.
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
    """The size of a weight that its module also stores, which shrinks with the weight."""


class ComputedSize(_Knowing):
    """A product with the width of a channel axis as a factor, which shrinks with the width."""

    @override
    def __mul__(self, other: Any) -> Any:
        """Return the product."""
        value = int(self) * other
        return ComputedSize(value) if type(value) is int else value

    __rmul__ = __mul__


class NamedSize(Countable):
    """The width of an axis of channels, or that width divided by an integer.

    Attributes:
        ids: the channels along the axis.
        computed: called with the channels if code computes with the width as with a plain number.
        is_rest: whether it is the width divided by a number that does not shrink.
    """

    ids: Ids
    computed: Callable[[Ids], None]
    is_rest: bool = False

    @classmethod
    def named(cls, value: int, ids: Ids, computed: Callable[[Ids], None]) -> "NamedSize":
        """Return `value` as the number of the channels `ids`."""
        made = cls(value)
        made.ids, made.computed = ids, computed
        return made

    @override
    def __floordiv__(self, other: Any) -> Any:
        """Return the quotient; it keeps the channels if the division is exact."""
        value = int(self) // other
        if type(value) is not int or value * other != int(self):
            return value
        # a divisor that shrinks with the width, such as a number of heads: the quotient stays
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
        """Return the product, which shrinks with the width."""
        if not isinstance(other, int):
            self.used()
        return ComputedSize(int(self)) * other

    __rmul__ = __mul__


def _ignored(_: Ids) -> None:
    """Do nothing, because the value does not change."""


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
    """Replace the integers of all modules of `model` by `NamedInteger`s, within the context.

    The shapes that norms with weights store consist of `WeightSize`s.

    Args:
        model: any module.
        computed: called when code computes with one of them as with a plain number.
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
    """Bypass the size caches of imported libraries."""
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
