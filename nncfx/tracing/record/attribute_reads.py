"""Find the parameters that a forward reads as attributes of modules, which can be hooked."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph import NNCFGraph

_TABLE: Final = "_parameters"


class _Table(dict[str, Any]):
    """The parameters of one module; records which are read as attributes."""

    def __init__(self, table: dict[str, Any], read: set[int]) -> None:
        super().__init__(table)
        self._read = read

    @override
    def __getitem__(self, name: str) -> Any:
        found = super().__getitem__(name)
        frame = sys._getframe(1)  # noqa: SLF001 (no public way)
        around = frame.f_back
        # __getattr__ of nn.Module or a subclass; get_parameter returns the stored tensor
        is_attribute = frame.f_code.co_name == "__getattr__"
        if is_attribute and (around is None or around.f_code.co_name != "get_parameter"):
            self._read.add(id(found))
        return found


@final
class AttributeReads:
    """The parameters that a forward reads as attributes, under any name."""

    def __init__(self, modules: Iterable[tuple[str, nn.Module]]) -> None:
        """Prepare to record reads of `modules`, listed under every name."""
        self._modules = modules
        self._read: set[int] = set()
        self._with_parameters: list[tuple[str, nn.Module]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Record reads within the context; the tables of parameters are restored on exit."""
        held: list[tuple[dict[str, Any], dict[str, Any]]] = []
        try:
            for name, module in self._modules:
                own = module.__dict__
                before = own[_TABLE]
                if not before:  # containers have none
                    continue
                self._with_parameters.append((name, module))
                if type(before) is not _Table:  # it has several names
                    held.append((own, before))
                    own[_TABLE] = _Table(before, self._read)
            yield
        finally:
            for own, before in held:
                own[_TABLE] = before

    def bypassed(self, graph: NNCFGraph) -> frozenset[str]:
        """Return the names of parameters that operations read, but never as attributes."""
        left: dict[str, torch.Tensor] = {
            f"{prefix}.{name}" if prefix else name: one
            for prefix, module in self._with_parameters
            # recurrent modules read weights through a list, which is hooked like attributes
            if not isinstance(module, nn.RNNBase)
            for name, one in vars(module)[_TABLE].items()
            if one is not None and id(one) not in self._read
        }
        if not left:
            return frozenset()
        names = (name for one in graph.operations for name in one.parameters.values())
        read = {id(left[name]) for name in names if name in left}
        return frozenset(name for name, one in left.items() if id(one) in read)
