"""The suite of algorithms has teeth: a sound toy passes, and broken ones are caught."""

import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, final

import pytest
import torch
from torch import Tensor, nn

from nncfx.config import AlgorithmConfig, option
from nncfx.controllers import (
    BaselineSchedule,
    Builder,
    Controller,
    EpochScheduler,
    Statistics,
    register_algorithm,
    unregister_algorithm,
)
from nncfx.errors import StorageError
from nncfx.network import NNCFNetwork
from nncfx.testing import ALGORITHM_PROMISES, AlgorithmSubject
from nncfx.tracing import Insertion, Priority, WeightSite

BY_NAME = {promise.__name__: promise for promise in ALGORITHM_PROMISES}


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig(AlgorithmConfig):
    """Scales down the weights of some layers."""

    algorithm: ClassVar[str] = "toy"
    power: int = option(1, "how steeply")


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossyConfig(AlgorithmConfig):
    """Forgets a key on the way to JSON."""

    algorithm: ClassVar[str] = "lossy"
    power: int = option(1, "how steeply")

    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if key != "power"}


class ToyHook(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones_like(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.scale

    def set(self, level: float) -> None:
        self.scale.view(-1)[: int(level * self.scale.numel())] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyStatistics(Statistics):
    level: float

    def to_str(self) -> str:
        return f"{self.level}"


class ToyController(Controller):
    def __init__(self, model: nn.Module, config: ToyConfig, hooks: list[ToyHook]) -> None:
        super().__init__(model, "toy", [config])
        self.hooks = hooks
        self.scheduler = EpochScheduler(self, _Rising(target=0.5), 100)

    def statistics(self) -> ToyStatistics:
        return ToyStatistics(level=self.level)

    def _apply(self, level: float) -> None:
        for hook in self.hooks:
            hook.scale.fill_(1)
            hook.set(level)


@dataclasses.dataclass(frozen=True)
class _Rising(BaselineSchedule):
    def level(self, epoch: float) -> float:
        return self.target * min(epoch / 3, 1)


class ToyBuilder(Builder[ToyConfig]):
    hook: ClassVar[type[ToyHook]] = ToyHook
    handle: ClassVar[type[ToyController]] = ToyController
    priority: ClassVar[int] = Priority.DEFAULT

    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return [
            Insertion(WeightSite.of(name), self.hook(parameter.detach()), self.priority, "toy")
            for name, parameter in model.named_parameters()
            if parameter.ndim > 1
        ]

    def controller(self, model: NNCFNetwork, insertions: Sequence[Insertion]) -> ToyController:
        return self.handle(model, self.config, [one.hook for one in insertions])  # type: ignore[misc]


def _with_hook(priority: int = Priority.DEFAULT, **methods: Any) -> type[ToyBuilder]:  # noqa: ANN401
    hook = type("BrokenHook", (ToyHook,), methods)
    return type("Broken", (ToyBuilder,), {"hook": hook, "priority": priority})


def _with_controller(**methods: Any) -> type[ToyBuilder]:  # noqa: ANN401
    handle = type("BrokenController", (ToyController,), methods)
    return type("Broken", (ToyBuilder,), {"handle": handle})


_CALLS = itertools.count(1)


def _loses_one(hook: ToyHook, level: float) -> None:
    hook.scale.view(-1)[: int(level * hook.scale.numel()) + 1] = 0


def _random_start(hook: ToyHook, weight: Tensor) -> None:
    ToyHook.__init__(hook, weight)
    hook.scale.fill_(next(_CALLS))


def _meddle(builder: ToyBuilder, model: NNCFNetwork) -> list[Insertion]:
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    return ToyBuilder.plan(builder, model)


def _outside_the_state(hook: ToyHook, weight: Tensor) -> None:
    nn.Module.__init__(hook)
    hook.__dict__["scale"] = torch.ones_like(weight)


def _on_the_cpu(hook: ToyHook, level: float) -> None:
    hook.scale.mul_(torch.full(hook.scale.shape, 1 - level))


def _captured(hook: ToyHook, weight: Tensor) -> None:
    ToyHook.__init__(hook, weight)
    hook.__dict__["captured"] = weight.clone()


def _in_place(controller: ToyController, level: float) -> None:
    ToyController._apply(controller, level)
    if level:
        with torch.no_grad():
            next(controller.model.parameters()).mul_(1 - level)


def _forgets(hook: ToyHook, mode: bool = True) -> ToyHook:
    if mode:
        hook.scale.fill_(1)
    return nn.Module.train(hook, mode)


def _falling(controller: ToyController, *_: object) -> None:
    ToyController.__init__(controller, *_)  # type: ignore[arg-type]
    schedule = dataclasses.make_dataclass("F", [], namespace={"level": lambda _, e: 0.5 / (1 + e)})
    controller.scheduler = EpochScheduler(controller, schedule(), 100)


class UnpicklableHook(ToyHook):
    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.anonymous = lambda: weight


TEETH: dict[str, type[ToyBuilder]] = {
    "level_zero_is_the_identity_bitwise": _with_hook(set=_loses_one),
    "a_high_level_changes_the_output": _with_hook(set=lambda *_: None),
    "planning_is_deterministic": _with_hook(__init__=_random_start),
    "planning_touches_nothing": type("Broken", (ToyBuilder,), {"plan": _meddle}),
    "gradients_reach_every_parameter": _with_hook(
        forward=lambda hook, weight: weight.detach() * hook.scale
    ),
    "state_dict_into_a_fresh_model_gives_the_same_output": _with_hook(__init__=_outside_the_state),
    "of_damaged_states_only_errors_of_nncfx_tell": _with_controller(
        load_state_dict=lambda _, state: math.ceil(state["level"])
    ),
    "the_models_state_dict_alone_resumes_the_schedule": _with_controller(
        load_state_dict=lambda *_: None
    ),
    "pickle_and_deepcopy_keep_the_output": type(
        "Broken", (ToyBuilder,), {"hook": UnpicklableHook}
    ),
    "statistics_are_in_range_and_monotone": _with_controller(
        statistics=lambda controller: ToyStatistics(level=2 * controller.level)
    ),
    "statistics_survive_json": _with_controller(
        statistics=lambda controller: ToyStatistics(level=torch.tensor(controller.level))
    ),
    "the_schedule_rises_to_its_target": _with_controller(__init__=_falling),
    "it_composes_with_others": _with_hook(
        priority=100,
        __init__=_captured,
        forward=lambda hook, weight: hook.captured * hook.scale + 0 * weight,
    ),
    "strip_agrees": _with_hook(forward=lambda _, weight: weight * next(_CALLS)),
    "mode_and_dtype_change_nothing": _with_hook(train=_forgets),
    "another_device_computes_the_same": _with_hook(set=_on_the_cpu),
    "removing_restores_the_original": _with_controller(_apply=_in_place),
}

# what comes out that is not of nncfx
REFUSALS: dict[str, tuple[type[Exception], ...]] = {
    "pickle_and_deepcopy_keep_the_output": (AttributeError, pickle.PicklingError),
    "statistics_survive_json": (TypeError,),
    "of_damaged_states_only_errors_of_nncfx_tell": (KeyError, TypeError),
}


@pytest.fixture
def toy() -> Iterator[Callable[[type[ToyBuilder]], AlgorithmSubject]]:
    def enter(builder: type[ToyBuilder]) -> AlgorithmSubject:
        register_algorithm(ToyConfig)(builder)
        return AlgorithmSubject({"algorithm": "toy"})

    yield enter
    unregister_algorithm("toy")


@pytest.mark.parametrize("promise", ALGORITHM_PROMISES, ids=lambda one: one.__name__)
def test_a_sound_toy_algorithm_keeps_it(
    toy: Callable[[type[ToyBuilder]], AlgorithmSubject],
    promise: Callable[[AlgorithmSubject], None],
) -> None:
    promise(toy(ToyBuilder))


@pytest.mark.parametrize("name", sorted(TEETH))
def test_an_algorithm_that_breaks_it_is_caught(
    toy: Callable[[type[ToyBuilder]], AlgorithmSubject], name: str
) -> None:
    subject = toy(TEETH[name])
    with pytest.raises((AssertionError, StorageError, *REFUSALS.get(name, ()))):
        BY_NAME[name](subject)


def test_a_config_that_loses_a_key_is_caught() -> None:
    register_algorithm(LossyConfig)(ToyBuilder)
    try:
        with pytest.raises(AssertionError):
            BY_NAME["config_survives_json"](AlgorithmSubject({"algorithm": "lossy", "power": 3}))
    finally:
        unregister_algorithm("lossy")


def test_every_promise_has_a_tooth() -> None:
    assert {*TEETH, "config_survives_json"} == set(BY_NAME)
