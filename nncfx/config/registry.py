"""The registry of algorithm configs: the `algorithm` names that a config may use.

The config package is independent of algorithms: each algorithm registers its config class here
when `nncfx.config.discovery` imports it.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Self, TypeVar

from typing_extensions import override

from nncfx.config.discovery import config_module, find_algorithms
from nncfx.config.initializer import Initializer
from nncfx.config.option import Limits, option
from nncfx.config.section import ScopeResolver, Section, with_scopes
from nncfx.errors import ArgumentError


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlgorithmConfig(Section):
    """The keys that every algorithm has.

    Attributes:
        algorithm: The value of the key `algorithm`; each subclass sets its own.
        has_scopes: Whether the algorithm applies to a part of the operations, so that the scopes
            of the whole config hold for it.
        from_data: What is computed from calibration samples, and how a config can avoid it.
        removes_channels: Whether it leaves dead channels, which `nncfx.thin` removes.
    """

    algorithm: ClassVar[str]
    has_scopes: ClassVar[bool] = True
    from_data: ClassVar[tuple[str, str]] = ("its state", "take the item out of the config")
    removes_channels: ClassVar[bool] = False

    ignored_scopes: tuple[str, ...] = option(
        (),
        "addresses, scopes or {re} patterns of operations that the algorithm leaves alone",
        single=True,
    )
    target_scopes: tuple[str, ...] | None = option(
        None,
        "addresses, scopes or {re} patterns of the only operations that the algorithm works on",
        single=True,
    )
    validate_scopes: bool = option(
        default=True, doc="whether a scope that matches nothing is an error"
    )

    @property
    def lr_multiplier(self) -> float:
        """The factor on the learning rate of the algorithm's own parameters."""
        return 1.0

    @property
    def depends_on_device(self) -> bool:
        """Whether the `target_device` of the whole config affects the algorithm."""
        return False

    def with_scopes(self, resolve: ScopeResolver) -> Self:
        """Return this with its scopes resolved; override it if other keys have scopes."""
        return with_scopes(self, "", resolve)

    def within(self, device: str, lr_multiplier: float | None) -> Self:  # noqa: ARG002 (for others)
        """Return this with defaults from the whole config for keys that it does not set.

        Args:
            device: The `target_device`.
            lr_multiplier: The `compression_lr_multiplier`.
        """
        return self

    @property
    def calibration_samples(self) -> int:
        """How many examples the algorithm itself needs before training; usually none."""
        return 0

    @property
    def adaptation_samples(self) -> int:
        """How many examples batch norms need before training."""
        return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainedAlgorithmConfig(AlgorithmConfig):
    """The keys of an algorithm that trains parameters of its own."""

    compression_lr_multiplier: float | None = option(
        None,
        "the factor of the learning rate for the algorithm's own parameters, in "
        "controller.parameter_groups",
        limits=Limits(minimum=0),
    )

    @property
    @override
    def lr_multiplier(self) -> float:
        multiplier = self.compression_lr_multiplier
        return 1.0 if multiplier is None else multiplier

    @override
    def within(self, device: str, lr_multiplier: float | None) -> Self:
        own = self.compression_lr_multiplier
        return self if own is not None else replace(self, compression_lr_multiplier=lr_multiplier)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InitializedAlgorithmConfig(AlgorithmConfig):
    """The keys of an algorithm after which batch norms may be adapted."""

    initializer: Initializer | None = option(None, "what is done before training")

    @property
    @override
    def adaptation_samples(self) -> int:
        adaptation = self.initializer and self.initializer.batchnorm_adaptation
        return adaptation.num_bn_adaptation_samples if adaptation else 0


C = TypeVar("C", bound=AlgorithmConfig)

_registered: dict[str, type[AlgorithmConfig]] = {}


def algorithm_configs() -> Mapping[str, type[AlgorithmConfig]]:
    """Return the config classes by the name of their algorithm, in order of registration.

    The first call searches nncfx and installed packages for them.
    """
    find_algorithms(_registered)
    return MappingProxyType(_registered)


def register_algorithm_config(cls: type[C]) -> type[C]:
    """Register `cls` by its `algorithm`; use it as a class decorator.

    Raises:
        ArgumentError: `cls` has no algorithm name or is not a dataclass, or the name is taken.
    """
    name = inspect.getattr_static(cls, "algorithm", None)
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"{cls.__name__} has no name, by which a config could ask for it. Set "
            "'algorithm: ClassVar[str] = \"...\"' in the class."
        )
    if any(isinstance(one, dataclasses.Field) for one in vars(cls).values()):
        raise ArgumentError(
            f"{cls.__name__} has options and is not a dataclass. Write "
            "'@dataclasses.dataclass(frozen=True, kw_only=True)' right above the class."
        )
    owner = config_module(name)
    if owner not in (None, cls.__module__):
        raise _taken(name, str(owner))
    other = _registered.setdefault(name, cls)
    if other is not cls:
        raise _taken(name, f"{other.__module__}.{other.__qualname__}")
    return cls


def _taken(name: str, owner: str) -> ArgumentError:
    return ArgumentError(
        f"The algorithm '{name}' is registered already, by {owner}; a name means one algorithm. "
        "Choose another name."
    )


def unregister_algorithm_config(name: str) -> None:
    """Remove the config class of `name`; does nothing if there is none."""
    _registered.pop(name, None)
