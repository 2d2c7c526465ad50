"""Builders, which plan the insertions of one algorithm without changing the model."""

import abc
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from nncfx.config import (
    AlgorithmConfig,
    algorithm_configs,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.config.discovery import BUILT_IN
from nncfx.controllers.base.controller import Controller
from nncfx.errors import ArgumentError, did_you_mean
from nncfx.graph import Operation
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion

C = TypeVar("C", bound=AlgorithmConfig)


class Builder(abc.ABC, Generic[C]):
    """Plans one algorithm for one model.

    Attributes:
        config: The item of the config, with the scopes of the whole config merged in.
    """

    def __init__(self, config: C) -> None:
        self.config = config

    @abc.abstractmethod
    def plan(self, model: NNCFNetwork) -> Sequence[Insertion]:
        """Return the insertions for the wrapped `model`, the same at every call.

        A plan is data: the model and its hooks do not change until the insertions are registered
        and committed.

        Raises:
            CompressionError: the algorithm finds nothing to work on.
        """

    @abc.abstractmethod
    def controller(self, model: NNCFNetwork, insertions: Sequence[Insertion]) -> Controller:
        """Return the controller of the committed `insertions`, with the initial level applied."""

    def considered(self, model: NNCFNetwork) -> list[Operation]:
        """Return the operations within target scopes (if given) and outside ignored scopes."""
        graph = model.nncf.graph
        targets = self.config.target_scopes
        wanted = graph.operations if targets is None else graph.select(targets)
        ignored = {one.address for one in graph.select(self.config.ignored_scopes)}
        return [one for one in wanted if one.address not in ignored]


B = TypeVar("B", bound=Builder[Any])

_builders: dict[str, tuple[type[AlgorithmConfig], type[Builder[Any]]]] = {}


def register_algorithm(config: type[AlgorithmConfig]) -> Callable[[type[B]], type[B]]:
    """Return a class decorator that registers a builder for `config`.

    Config files can then use the config's `algorithm` as a name.

    Raises:
        ArgumentError: another algorithm has that name.
    """
    register_algorithm_config(config)

    def enter(builder: type[B]) -> type[B]:
        home = BUILT_IN.get(config.algorithm)
        if home not in (None, builder.__module__):
            importlib.import_module(str(home))
        known = _builders.setdefault(config.algorithm, (config, builder))
        if known[1] is not builder:
            raise ArgumentError(
                f"The algorithm '{config.algorithm}' is built by {known[1].__qualname__} already; "
                "a name means one algorithm. Choose another name."
            )
        return builder

    return enter


def unregister_algorithm(algorithm: str) -> None:
    """Remove config and builder of `algorithm`, if registered."""
    _builders.pop(algorithm, None)
    unregister_algorithm_config(algorithm)


def registered_algorithms() -> tuple[str, ...]:
    """Return the sorted names of all available algorithms, including those of other packages."""
    algorithm_configs()  # discovers algorithms of installed packages
    return tuple(sorted({*BUILT_IN, *_builders}))


def builder_for(config: AlgorithmConfig) -> Builder[Any]:
    """Return the builder for `config`.

    Raises:
        ArgumentError: no builder is registered for that algorithm.
    """
    if config.algorithm in BUILT_IN:
        importlib.import_module(BUILT_IN[config.algorithm])
    if config.algorithm not in _builders:
        raise ArgumentError(
            f"No builder is registered for '{config.algorithm}'."
            f"{did_you_mean(config.algorithm, _builders)} Import the module that defines it."
        )
    return _builders[config.algorithm][1](config)
