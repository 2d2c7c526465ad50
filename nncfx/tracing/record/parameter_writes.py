"""Restore parameters that a traced forward writes to."""

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final, final

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from nncfx.tracing.calls.tensors import tensors_in


@final
class ParameterWrites:
    """The original values of parameters that a forward changes in place.

    Layers that initialize themselves in their first training forward do that, such as ActNorm of
    Glow; they would write values of the example inputs, and torch does not count changes through
    `.data`. Values are copied only if they are written to.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        """Index the parameters of `modules`, except those on "meta", which have no values."""
        self._owners: dict[int, list[torch.Tensor]] = {}
        for module in modules:
            for one in module._parameters.values():  # noqa: SLF001 (as torch's own walk)
                if one is not None and not one.is_meta and one.layout == torch.strided:
                    self._owners.setdefault(memory_of(one), []).append(one)
        # pairs of `.data` and copy; through `.data`, because a backward pass may be pending
        self._before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._held: set[int] = set()

    def expect(
        self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Return the parameters that a call of torch's function `name` will change.

        Their values are saved for `undo`.
        """
        written = args[0] if args and changes_its_first(name, kwargs) else kwargs.get("out")
        return [] if written is None else self.hold(tensors_in(written))  # or a list of them

    def hold(self, written: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        """Save the values of the parameters that share memory with `written`; return these."""
        changed: list[torch.Tensor] = []
        for tensor in written:
            memory = memory_of(tensor)
            owners = self._owners.get(memory, ())
            if owners and memory not in self._held:
                self._held.add(memory)
                self._before += [(one.data, one.detach().clone()) for one in owners]
            changed += owners
        return changed

    def is_held(self, tensor: torch.Tensor) -> bool:
        """Return whether `undo` will restore the memory of `tensor`."""
        return memory_of(tensor) in self._held

    def undo(self) -> None:
        """Restore the saved values of the parameters."""
        for one, values in self._before:
            one.copy_(values)
        self._before.clear()
        self._held.clear()


@final
class WatchedWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it so
    """Saves the values of parameters that a forward writes to, including its scripted parts.

    Unlike a function mode, it does not affect which paths torch's modules choose.

    Attributes:
        writes: The recorded writes.
    """

    supports_higher_order_operators = True

    def __init__(self, writes: ParameterWrites) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.writes = writes

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        # higher-order operators such as torch.cond have no schema and write nothing
        schema = getattr(func, "_schema", None)
        for place, one in enumerate(() if schema is None else schema.arguments):
            if one.is_write:
                value = args[place] if place < len(args) else named.get(one.name)
                self.writes.hold(tensors_in(value))
        return func(*args, **named)


_NO_CHANGE: Final = frozenset(["__index__", "__int__", "__invert__"])


def changes_its_first(name: str, kwargs: Mapping[str, Any] = MappingProxyType({})) -> bool:
    """Return whether a call of torch's function `name` with `kwargs` changes its first argument.

    >>> [changes_its_first(one) for one in ("copy_", "__iadd__", "__setitem__", "__add__", "add")]
    [True, True, True, False, False]
    >>> changes_its_first("hardtanh", {"inplace": True})
    True
    """
    return _is_of_change(name) or bool(kwargs.get("inplace"))


@cache
def _is_of_change(name: str) -> bool:
    is_in_place = name.startswith("__i") and name not in _NO_CHANGE
    is_private = name.startswith("__")
    return is_in_place or name == "__setitem__" or (name.endswith("_") and not is_private)


def memory_of(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's memory; 0 if it has none, as in torch.func."""
    try:
        # also identifies meta tensors, which have no data address
        address: int = tensor.untyped_storage()._cdata  # noqa: SLF001 (no public identity)
    except NotImplementedError:  # also raised for sparse tensors
        return 0
    return address
