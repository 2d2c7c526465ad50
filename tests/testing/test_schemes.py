"""The suite of schemes has teeth: a sound toy passes, and broken ones are caught."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes import Scheme
from nncfx.testing import SCHEME_PROMISES, SchemeSubject

BY_NAME = {promise.__name__: promise for promise in SCHEME_PROMISES}


@dataclass(frozen=True)
class Toy(Scheme):
    """Zeroes the first entries of the weight of `fc1`."""

    def check(self, level: float) -> None:
        if not 0 <= level < 1:
            raise ArgumentError(f"level is {level}")

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        self.check(level)
        with torch.no_grad():
            weight = model.get_parameter("fc1.weight")
            weight.view(-1)[: int(level * weight.numel())] = 0

    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return frozenset({"fc1.weight"})


@dataclass(frozen=True)
class RoundsAtZero(Toy):
    @override
    def compress(self, model: nn.Module, level: float) -> None:
        super().compress(model, level)
        model.fc1.weight.data.add_(0.0)


@dataclass(frozen=True)
class Shrinks(Toy):
    @override
    def compress(self, model: nn.Module, level: float) -> None:
        super().compress(model, level)
        model.fc1.weight.data.mul_(1 - level)


@dataclass(frozen=True)
class Unnamed(Toy):
    @override
    def parameters(self, model: nn.Module) -> frozenset[str]:
        return frozenset({"fc2.weight"})


@dataclass(frozen=True)
class OneLevel(Toy):
    @override
    def compress(self, model: nn.Module, level: float) -> None:
        super().compress(model, 0.5 if level else 0.0)


@dataclass(frozen=True)
class Unchecked(Toy):
    @override
    def check(self, level: float) -> None: ...


@dataclass(frozen=True)
class Remembers(Toy):
    seen: ClassVar[list[float]] = [0.0]

    @override
    def compress(self, model: nn.Module, level: float) -> None:
        self.seen[0] = max(self.seen[0], level)
        super().compress(model, self.seen[0])


@dataclass(frozen=True)
class Replaces(Toy):
    @override
    def compress(self, model: nn.Module, level: float) -> None:
        model.fc1.weight = nn.Parameter(model.fc1.weight.detach().clone())
        super().compress(model, level)


@dataclass(frozen=True)
class OnTheCpu(Toy):
    @override
    def compress(self, model: nn.Module, level: float) -> None:
        super().compress(model, level)
        with torch.no_grad():
            model.fc1.weight.mul_(torch.ones(model.fc1.weight.shape))


TEETH: dict[str, Scheme] = {
    "level_zero_is_the_identity_bitwise": RoundsAtZero(),
    "projecting_twice_is_projecting_once": Shrinks(),
    "only_the_parameters_it_names_change": Unnamed(),
    "a_higher_level_leaves_fewer_weights": OneLevel(),
    "a_percentage_is_refused": Unchecked(),
    "it_holds_settings_only": Remembers(),
    "parameters_stay_themselves": Replaces(),
    "another_device_gives_the_same_weights": OnTheCpu(),
}


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_sound_toy_scheme_keeps_it_and_a_broken_one_is_caught(name: str) -> None:
    BY_NAME[name](SchemeSubject(scheme=Toy()))
    with pytest.raises(AssertionError):
        BY_NAME[name](SchemeSubject(scheme=TEETH[name]))
