"""Schemes composed of schemes, and schemes from plain functions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.graph.channels import Channels
from nncfx.schemes.masks.exact_masks import check_level
from nncfx.schemes.scheme import Scheme
from nncfx.tracing.calls.model_copy import copy_of

SchemeLike: TypeAlias = Scheme | Callable[[nn.Module, float], None]
"""A scheme, or a function that compresses a model in place at a level."""


@dataclass(frozen=True)
class Compose(Scheme):
    """Applies schemes one after the other; decompresses in the reverse order.

    A later scheme sees the weights that the earlier ones left.

    Attributes:
        schemes: At least one scheme, or plain functions `(model, level) -> None`.

    Raises:
        ArgumentError: there is no scheme, or an entry is not a scheme.

    Source: Condensa (Joseph et al. 2020), Table 1.
    """

    schemes: Sequence[SchemeLike]

    def __post_init__(self) -> None:
        if isinstance(self.schemes, Scheme) or not isinstance(self.schemes, Sequence):
            raise ArgumentError(
                f"Compose takes a list of schemes, not {self.schemes!r}. "
                "Write Compose([Prune(), Quantize('float16')])."
            )
        if not self.schemes:
            raise ArgumentError("Compose has no schemes, so it compresses nothing. List one.")
        object.__setattr__(self, "schemes", tuple(as_scheme(one) for one in self.schemes))

    @property
    def parts(self) -> tuple[Scheme, ...]:
        """The schemes, in the order in which they compress."""
        return tuple(as_scheme(one) for one in self.schemes)

    @property
    @override
    def is_structured(self) -> bool:
        return any(one.is_structured for one in self.parts)

    @override
    def bind(self, channels: Channels) -> "Compose":
        """Return the composition of the bound schemes."""
        return Compose([one.bind(channels) for one in self.parts])

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        for one in self.parts:
            one.compress(model, level)

    @override
    def decompress(self, model: nn.Module) -> None:
        for one in reversed(self.parts):
            one.decompress(model)

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return frozenset().union(*(one.parameters(model) for one in self.parts))


@dataclass(frozen=True)
class AtLevel(Scheme):
    """Applies a scheme at its own level, whatever the requested level.

    `Compose([AtLevel(Prune(layers=("lstm",)), 0.9), AtLevel(Prune(layers=("linear",)), 0.5)])`
    has two levels.

    Attributes:
        scheme: A scheme, or a plain function `(model, level) -> None`.
        own_level: The level, in [0, 1).

    Raises:
        ArgumentError: the level is out of range, or the scheme is not a scheme.
    """

    scheme: SchemeLike
    own_level: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scheme", as_scheme(self.scheme))
        check_level(self.own_level)

    @property
    @override
    def is_structured(self) -> bool:
        return as_scheme(self.scheme).is_structured

    @override
    def bind(self, channels: Channels) -> "AtLevel":
        """Return the bound scheme at the same level."""
        return AtLevel(as_scheme(self.scheme).bind(channels), self.own_level)

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        check_level(level)
        as_scheme(self.scheme).compress(model, self.own_level)

    @override
    def decompress(self, model: nn.Module) -> None:
        as_scheme(self.scheme).decompress(model)

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return as_scheme(self.scheme).parameters(model)


def single_schemes(scheme: Scheme) -> Iterator[Scheme]:
    """Yield the schemes that `scheme` composes, at any depth and level; or `scheme` itself."""
    if isinstance(scheme, Compose):
        for one in scheme.parts:
            yield from single_schemes(one)
    elif isinstance(scheme, AtLevel):
        yield from single_schemes(as_scheme(scheme.scheme))
    else:
        yield scheme


@dataclass(frozen=True)
class FunctionScheme(Scheme):
    """A scheme of plain Python functions, with any control flow.

    The functions run outside autograd, so they may write to parameters in place.
    The constrained parameters are found by applying the function to a copy of the model.

    Attributes:
        function: Compresses a model in place at a level.
        undo: Restores the model's working dtype; None: nothing to do.
        probe_level: The level at which the function is applied to find what it changes.

    Raises:
        ArgumentError: a function is not callable, or `probe_level` is not a level.
    """

    function: Callable[[nn.Module, float], None]
    undo: Callable[[nn.Module], None] | None = None
    probe_level: float = 0.5

    def __post_init__(self) -> None:
        check_level(self.probe_level)
        for one in (self.function, self.undo):
            if one is not None and not callable(one):
                raise ArgumentError(
                    f"{one!r} is not callable; a scheme is made of functions "
                    "(model, level) -> None and, to undo, (model) -> None."
                )

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        with torch.no_grad():
            self.function(model, check_level(level))

    @override
    def decompress(self, model: nn.Module) -> None:
        if self.undo is not None:
            with torch.no_grad():
                self.undo(model)

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        trial = copy_of(model)
        self.compress(trial, self.probe_level)
        after = dict(trial.named_parameters())
        return frozenset(
            name
            for name, parameter in model.named_parameters()
            if parameter.dtype != after[name].dtype or not torch.equal(parameter, after[name])
        )


def as_scheme(scheme: SchemeLike) -> Scheme:
    """Return `scheme` itself, or the scheme of a function `(model, level) -> None`.

    Raises:
        ArgumentError: it is neither.
    """
    return scheme if isinstance(scheme, Scheme) else FunctionScheme(scheme)
