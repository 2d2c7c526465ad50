"""Find the tensors in the arguments and results of models and torch functions."""

import copy
from collections import UserDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, Final

import torch
from torch import nn

from nncfx.graph.operations import TensorInfo


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in `value`, in order.

    Searches mappings (by value), dataclasses (by field), sequences and sets, however nested;
    other objects are not searched.
    """
    if type(value) is torch.Tensor:  # the most frequent case
        return [value]
    found: list[torch.Tensor] = []
    _collect(value if type(value) is tuple else (value,), found)
    return found


def _collect(parts: Iterable[Any], found: list[torch.Tensor]) -> None:
    for part in parts:
        if isinstance(part, torch.Tensor):
            found.append(part)
        elif type(part) is tuple:
            _collect(part, found)
        elif type(part) not in _LEAVES:
            _collect(_parts(part), found)


_LEAVES: Final = frozenset(
    {bool, bytes, float, int, str, type(None), torch.Size, torch.device, torch.dtype}
)
"""Types of most arguments other than tensors; they hold no tensors and are not searched."""

_SEQUENCES: Final = (tuple, list, set, frozenset)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, _SEQUENCES):
        return value
    if isinstance(value, Mapping):
        return value.values()
    if is_dataclass(value) and not isinstance(value, type):
        # reading an attribute can raise, for instance in configs with values by layer
        own = getattr(value, "__dict__", {})
        names = (one.name for one in fields(value))
        return [own[name] if name in own else getattr(value, name) for name in names]
    return ()


def is_transformed() -> bool:
    """Return whether the present call is inside a transform of torch.func, such as vmap."""
    return torch._C._functorch.peek_interpreter_stack() is not None  # noqa: SLF001 (no public way)


def describe(tensor: torch.Tensor) -> TensorInfo:
    """Return shape, dtype and layout of `tensor`.

    >>> describe(torch.zeros(2, 3))
    TensorInfo(shape=(2, 3), dtype='float32')
    """
    return TensorInfo(tuple(tensor.shape), _name(tensor.dtype), _name(tensor.layout))


@cache
def _name(one: torch.dtype | torch.layout) -> str:
    return str(one).removeprefix("torch.")


class Describer:
    """Describes tensors as `describe` does, with one object per distinct description.

    Most shapes recur many times in a model.
    """

    def __init__(self) -> None:
        self._one: dict[tuple[Any, ...], TensorInfo] = {}
        self._several: dict[tuple[Any, ...], tuple[TensorInfo, ...]] = {}

    def __call__(self, tensors: Iterable[torch.Tensor]) -> tuple[TensorInfo, ...]:
        """Return the description of each tensor."""
        keys = tuple([(one.shape, one.dtype, one.layout) for one in tensors])
        known = self._several.get(keys)
        if known is None:
            known = self._several[keys] = tuple([self._described(*key) for key in keys])
        return known

    def _described(
        self, shape: torch.Size, dtype: torch.dtype, layout: torch.layout
    ) -> TensorInfo:
        made = TensorInfo(tuple(shape), _name(dtype), _name(layout))
        return self._one.setdefault((shape, dtype, layout), made)


def own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters, then the buffers, of `module` itself (not its children), by name.

    A tensor with two names is returned twice.
    """
    tables = (module._parameters, module._buffers)  # noqa: SLF001 (as torch's own walk)
    return {name: one for table in tables for name, one in table.items() if one is not None}


def replaced(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Apply `change` to all tensors in nested (named) tuples, lists, mappings and dataclasses.

    Mappings that forwards read by attribute keep their class: `UserDict`s, which tokenizers
    return, and dataclasses, such as the outputs of transformers.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type) and tensors_in(value):
        given = {one.name: getattr(value, one.name) for one in fields(value) if one.init}
        return replace(value, **{name: replaced(one, change) for name, one in given.items()})
    if isinstance(value, UserDict):
        made = copy.copy(value)
        made.data = replaced(value.data, change)
        return made
    if isinstance(value, Mapping):
        return {key: replaced(item, change) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [replaced(item, change) for item in value]
        plain = items if isinstance(value, list) else tuple(items)
        return type(value)(*items) if hasattr(value, "_fields") else plain
    return value
