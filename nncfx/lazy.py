"""Packages that import what stands in them at its first use (PEP 562)."""

import importlib
from collections.abc import Callable
from typing import Any

__all__ = ["names_of"]


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
