"""Objects created on access: names of packages (PEP 562), and values of mappings."""

import abc
import importlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from typing_extensions import override

__all__ = ["LazyMapping", "names_of"]

S = TypeVar("S")
V = TypeVar("V")


class LazyMapping(Mapping[str, V], abc.ABC, Generic[S, V]):
    """A mapping whose values are computed again on every access.

    Args:
        sources: The sources of the values, by name.
    """

    def __init__(self, sources: Mapping[str, S]) -> None:
        self._sources = sources

    @abc.abstractmethod
    def _made(self, source: S) -> V:
        """Return the value for a source."""

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
    """Return a `__getattr__` for `package` that looks names up in `modules`, in order.

    The name of a module gives the module itself.

    This way the config of an algorithm can be read without torch, though its package needs torch.
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
