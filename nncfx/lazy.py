"""What is made when it is asked for: names of packages (PEP 562), and values of mappings."""

import abc
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from typing_extensions import override

__all__ = ["LazyMapping", "names_of"]

S = TypeVar("S")
V = TypeVar("V")


class LazyMapping(Mapping[str, V], abc.ABC, Generic[S, V]):
    """A mapping whose values are made again, each whenever it is asked for.

    Args:
        sources: What the values are made of, by name.
    """

    def __init__(self, sources: Mapping[str, S]) -> None:
        self._sources = sources

    @abc.abstractmethod
    def _made(self, source: S) -> V:
        """Return the value of a source."""

    @override
    def __getitem__(self, name: str) -> V:
        return self._made(self._sources[name])

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._sources

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    @override
    def __len__(self) -> int:
        return len(self._sources)


def names_of(package: str, *modules: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of `package`: it looks a name up in `modules`, in their order.

    A module's own name is that module.

    So the config of an algorithm is read without torch, though the package beside it needs torch.
    """

    def find(name: str) -> Any:  # noqa: ANN401 (whatever has that name)
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        if not name.startswith("__"):
            for module in modules:
                home = importlib.import_module(f"{package}.{module}")
                if hasattr(home, name):
                    return getattr(home, name)
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return find
