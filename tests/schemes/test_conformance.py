"""What every scheme promises, and proof that the promises have teeth."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.schemes import (
    BlockPrune,
    Cluster,
    Compose,
    FilterPrune,
    HeadPrune,
    LowRank,
    NeuronPrune,
    Prune,
    Quantize,
    Scheme,
    StructurePrune,
)
from nncfx.testing import SCHEME_PROMISES, SchemeSubject

SUBJECTS = (
    SchemeSubject(scheme=Prune()),
    SchemeSubject(scheme=BlockPrune("l1norm", bs=2)),
    SchemeSubject(scheme=FilterPrune(), bound=True),
    SchemeSubject(scheme=NeuronPrune(), bound=True),
    SchemeSubject(scheme=StructurePrune(), bound=True),
    SchemeSubject(scheme=StructurePrune()),
    SchemeSubject(scheme=HeadPrune(), bound=True),
    # a second singular value decomposition rounds as float32 does, to 6e-8 a term
    SchemeSubject(scheme=LowRank(), zeroes=False, rounding=1e-6),
    SchemeSubject(scheme=Cluster(bits=3), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Quantize("float16"), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Quantize("int8"), reads_level=False, zeroes=False),
    SchemeSubject(scheme=Compose([Prune(), Quantize("float16")]), reads_level=False),
)
BY_NAME = {promise.__name__: promise for promise in SCHEME_PROMISES}


@pytest.mark.parametrize("promise", SCHEME_PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda one: str(one.scheme)[:30])
def test_it_keeps_its_promise(
    subject: SchemeSubject, promise: Callable[[SchemeSubject], None]
) -> None:
    promise(subject)


# Teeth: a sound toy scheme, and one broken variant of it for each promise.


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


TEETH: dict[str, Scheme] = {
    "level_zero_is_the_identity_bitwise": RoundsAtZero(),
    "projecting_twice_is_projecting_once": Shrinks(),
    "only_the_parameters_it_names_change": Unnamed(),
    "a_higher_level_leaves_fewer_weights": OneLevel(),
    "a_percentage_is_refused": Unchecked(),
    "it_holds_settings_only": Remembers(),
    "parameters_stay_themselves": Replaces(),
}


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_sound_toy_scheme_keeps_it_and_a_broken_one_is_caught(name: str) -> None:
    BY_NAME[name](SchemeSubject(scheme=Toy()))
    with pytest.raises(AssertionError):
        BY_NAME[name](SchemeSubject(scheme=TEETH[name]))
