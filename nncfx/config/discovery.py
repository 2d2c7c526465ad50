"""Finds algorithms in nncfx, and in installed packages that declare them.

A package declares an algorithm by an entry point of the group `nncfx.algorithms`. Its name is the
name of the algorithm; its value is the module that registers config and builder on import::

    [project.entry-points."nncfx.algorithms"]
    my_sparsity = "my_package.my_sparsity"

nncfx's own algorithms are listed here, since a folder that is not installed has no entry points.
Their configs are in a module `config` next to the builder, so a config is read without torch.
"""

import importlib
import logging
import threading
from collections.abc import Mapping, MutableMapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any, Final

_LOGGER = logging.getLogger(__name__)
GROUP: Final = "nncfx.algorithms"

BUILT_IN: Final[Mapping[str, str]] = MappingProxyType(
    {
        "block_pruning": "nncfx.algorithms.block_pruning.builder",
        "branch_pruning": "nncfx.algorithms.channel_pruning.kinds",
        "const_sparsity": "nncfx.algorithms.const_sparsity.builder",
        "entropy_constraint": "nncfx.algorithms.entropy_constraint.builder",
        "filter_pruning": "nncfx.algorithms.channel_pruning.kinds",
        "head_pruning": "nncfx.algorithms.channel_pruning.kinds",
        "knowledge_distillation": "nncfx.algorithms.knowledge_distillation.builder",
        "lc": "nncfx.lc.builder",
        "magnitude_sparsity": "nncfx.algorithms.magnitude_sparsity.builder",
        "movement_sparsity": "nncfx.algorithms.movement_sparsity.builder",
        "neuron_pruning": "nncfx.algorithms.channel_pruning.kinds",
        "nm_sparsity": "nncfx.algorithms.nm_sparsity.builder",
        "quantization": "nncfx.algorithms.quantization.builder",
        "rb_sparsity": "nncfx.algorithms.rb_sparsity.builder",
        "structure_pruning": "nncfx.algorithms.channel_pruning.kinds",
        "weight_clustering": "nncfx.algorithms.weight_clustering.builder",
    }
)
"""The module of the builder, by the name of the algorithm."""

_broken: dict[str, str] = {}
_state = {"found": False}
_LOCK: Final = threading.RLock()


def config_module(algorithm: str) -> str | None:
    """Return the module of the config of one of nncfx's own algorithms, else None."""
    builder = BUILT_IN.get(algorithm)
    return None if builder is None else f"{builder.rpartition('.')[0]}.config"


def find_algorithms(registered: MutableMapping[str, Any]) -> None:
    """Import, once, the modules that register their algorithms in `registered`.

    A failing import is not an error until a config asks for the algorithm; a warning is logged.
    """
    with _LOCK:
        if _state["found"]:
            return
        # set first, as a module that is imported below may also look for algorithms
        _state["found"] = True
        for algorithm in BUILT_IN:
            importlib.import_module(str(config_module(algorithm)))
        for entry in entry_points(group=GROUP):
            problem = _problem(entry, registered)
            if problem:
                _broken[entry.name] = problem
                _LOGGER.warning("%s", problem)


def _problem(entry: EntryPoint, registered: MutableMapping[str, Any]) -> str:
    """Return why an algorithm of another package cannot be used, "" if it can."""
    home = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "a package without a name"
    try:
        entry.load()
    except Exception as error:  # noqa: BLE001 (another package can raise anything)
        reason = f"importing '{entry.value}' raised {type(error).__name__}: {error}"
        if entry.name not in BUILT_IN:  # its config may have been registered before the error
            registered.pop(entry.name, None)
    else:
        if entry.name in registered:
            return ""
        reason = f"'{entry.value}' registers no config of that name"
    return (
        f"The algorithm '{entry.name}' of the installed package {home} cannot be used: "
        f"{reason.rstrip('.')}. Fix, upgrade or uninstall {home.partition(' ')[0]}."
    )


def broken_algorithms() -> Mapping[str, str]:
    """Return why algorithms of other packages cannot be used, by name."""
    return MappingProxyType(_broken)


def forget() -> None:
    """Search again at the next call, for example after installing a package at run time."""
    _state["found"] = False
    _broken.clear()
