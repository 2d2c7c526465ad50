"""What every registered algorithm promises, and proof that the promises have teeth.

A new algorithm adds one line to SUBJECTS; one without a line is an error.
"""

import copy
import dataclasses
import io
import itertools
import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, final

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import AlgorithmConfig, NNCFConfig, option
from nncfx.controllers import (
    BaselineSchedule,
    Builder,
    CompositeController,
    CompressionStage,
    Controller,
    EpochScheduler,
    Statistics,
    builder_for,
    register_algorithm,
    registered_algorithms,
    unregister_algorithm,
)
from nncfx.errors import ArgumentError, StorageError, TracingError
from nncfx.network import NNCFNetwork, strip, unwrap, wrap
from nncfx.tracing import Insertion, Priority, WeightSite
from nncfx.training.create import create_compressed_model

INPUTS = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


class Net(nn.Module):
    """A residual block, batch norm, attention of 4 heads, and linear layers after a flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.conv1 = nn.Conv2d(8, 12, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(12)
        self.conv2 = nn.Conv2d(12, 8, 1)
        self.qkv = nn.Linear(8, 24, bias=False)
        self.proj = nn.Linear(8, 8)
        self.fc1 = nn.Linear(8 * 16, 10)
        self.fc2 = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = x + self.conv2(self.norm(self.conv1(x)).relu())
        x = nn.functional.avg_pool2d(x, 2).flatten(2).transpose(1, 2)
        parts = self.qkv(x).unflatten(-1, (3, -1, 2)).permute(2, 0, 3, 1, 4)
        heads = nn.functional.scaled_dot_product_attention(*parts.unbind())
        x = (x + self.proj(heads.transpose(1, 2).flatten(2))).transpose(1, 2).flatten(1)
        return self.fc2(self.fc1(x).relu())


def fresh() -> Net:
    torch.manual_seed(0)
    model = Net()
    with torch.no_grad():
        model.norm.weight.uniform_(0.5, 2)
        model.norm.bias.uniform_(-1, 1)
        model.norm.running_mean.uniform_(-1, 1)
        # for const_sparsity to keep
        model.conv1.weight[..., 0, 0] = 0
    return model.eval()


@dataclasses.dataclass(frozen=True)
class Subject:
    """An algorithm as a config asks for it.

    One without a level neither has to reach one nor lets one be set; what it does, it does from
    its epoch 1 on. One that rounds makes zeros of its own, and changes activations. One that
    takes whole branches, of which the model has two, goes in two steps, and what is gone with all
    its layers gets no gradients.
    """

    item: dict[str, Any]
    has_level: bool = True
    rounds: bool = False
    is_whole: bool = False

    @property
    def name(self) -> str:
        return str(self.item["algorithm"])

    def applied(self, *others: "Subject", first: bool = True) -> tuple[Any, NNCFNetwork]:
        items = [self.item, *(other.item for other in others)]
        config = {"compression": items if first else items[::-1]}
        return create_compressed_model(fresh(), config, INPUTS)


SUBJECTS = (
    Subject({"algorithm": "magnitude_sparsity", "params": {"sparsity_target_epoch": 3}}),
    Subject(
        {
            "algorithm": "filter_pruning",
            "params": {"align": 1, "pruning_steps": 3, "prune_first_conv": True},
        },
    ),
    Subject(
        {
            "algorithm": "magnitude_sparsity",
            "params": {
                "schedule": "exponential",
                "sparsity_level_setting_mode": "local",
                "sparsity_target_epoch": 3,
                "update_per_optimizer_step": True,
                "weight_importance": "abs",
            },
        },
    ),
    Subject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "all_weights": True,
                "filter_importance": "geometric_median",
                "pruning_flops_target": 0.6,
                "pruning_steps": 3,
                "prune_batch_norms": False,
                "prune_first_conv": True,
            },
        },
    ),
    Subject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "constrained": False,
                "pruning_steps": 3,
                "prune_first_conv": True,
            },
        },
    ),
    Subject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "constrained": False,
                "pruning_side": "output",
                "pruning_steps": 3,
                "prune_first_conv": True,
            },
        },
    ),
    *(
        Subject({"algorithm": name, "params": {"align": 1, "pruning_steps": 3}})
        for name in ("head_pruning", "neuron_pruning")
    ),
    *(
        Subject(
            {
                "algorithm": "filter_pruning",
                "params": {
                    "align": 1,
                    "filter_importance": importance,
                    "pruning_steps": 3,
                    "prune_first_conv": True,
                },
            }
        )
        for importance in ("LAMP", "batch_norm_scale", "max", "random")
    ),
    Subject(
        {
            "algorithm": "branch_pruning",
            "params": {"pruning_steps": 3, "pruning_target": 0.6},
        },
        is_whole=True,
    ),
    Subject(
        {
            "algorithm": "structure_pruning",
            "params": {
                "align": 1,
                "all_weights": True,
                "pruning_parameters_target": 0.6,
                "pruning_steps": 3,
            },
        },
    ),
    Subject(
        {
            "algorithm": "block_pruning",
            "params": {"block": [4, 3], "sparsity_target_epoch": 3},
        },
    ),
    Subject({"algorithm": "rb_sparsity", "params": {"sparsity_target_epoch": 3}}),
    Subject(
        {"algorithm": "lc", "params": {"schedule": "polynomial", "sparsity_target_epoch": 3}},
    ),
    Subject({"algorithm": "nm_sparsity", "params": {"start_epoch": 2}}),
    Subject(
        {
            "algorithm": "movement_sparsity",
            "params": {
                "warmup_start_epoch": 1,
                "warmup_end_epoch": 3,
                "importance_regularization_factor": 0.1,
            },
        },
        has_level=False,
    ),
    Subject({"algorithm": "weight_clustering", "bits": 3, "params": {"start_epoch": 2}}),
    Subject(
        {
            "algorithm": "quantization",
            "initializer": {"range": {"num_init_samples": 0}},
            "params": {"activations_quant_start_epoch": 1, "weights_quant_start_epoch": 1},
        },
        has_level=False,
        rounds=True,
    ),
    Subject({"algorithm": "const_sparsity"}, has_level=False),
    Subject({"algorithm": "knowledge_distillation", "type": "mse"}, has_level=False),
    Subject({"algorithm": "knowledge_distillation", "type": "softmax"}, has_level=False),
)


def reach(controller: Controller, level: float) -> None:
    """Set the level; where a loss brings it about, train what the algorithm has of its own."""
    for part in controller.parts.values() if isinstance(controller, CompositeController) else ():
        if not part.has_level:
            part.scheduler.epoch_step(1 if level else 0)
    if not controller.has_level:
        with pytest.raises(ArgumentError, match="no level"):
            controller.level = level
        controller.scheduler.epoch_step(1 if level else 0)
        return
    controller.level = level
    learned = [p for g in controller.parameter_groups(lr=0.05)[1:] for p in g["params"]]
    if not learned:
        return
    optimizer = torch.optim.Adam(learned, lr=0.05)
    for _ in range(200):
        loss = controller.loss()
        if loss < 0.05:
            return
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pytest.fail(f"the loss stands at {float(loss)}, far from level {level}")


def baked(model: NNCFNetwork) -> nn.Module:
    """Return the model with its hooks in the weights, and no other hook."""
    copied = copy.deepcopy(model)
    weights = [one for one in copied.nncf.hooks if isinstance(one.site, WeightSite)]
    for algorithm in {one.algorithm for one in copied.nncf.hooks}:
        copied.nncf.remove(algorithm)
    copied.nncf.register(weights)
    copied.nncf.commit()
    return strip(copied)


def promise_level_zero_is_the_identity_bitwise(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.5)
    reach(controller, 0.0)
    assert torch.equal(model(INPUTS), fresh()(INPUTS))
    assert torch.equal(model.train()(INPUTS), fresh().train()(INPUTS))


def promise_a_high_level_changes_the_output(subject: Subject) -> None:
    if not subject.has_level:
        return
    controller, model = subject.applied()
    reach(controller, 0.75)
    assert not torch.allclose(model(INPUTS), fresh()(INPUTS), rtol=1e-3)


def promise_planning_is_deterministic(subject: Subject) -> None:
    first, second = (_plan(subject)[1] for _ in range(2))
    assert [(one.site, one.priority, one.algorithm) for one in first] == [
        (one.site, one.priority, one.algorithm) for one in second
    ]
    for one, other in zip(first, second, strict=True):
        assert _equal(one.hook.state_dict(), other.hook.state_dict())


def promise_planning_touches_nothing(subject: Subject) -> None:
    model, _ = _plan(subject)
    assert model.nncf.hooks == ()
    assert _equal(model.state_dict(), fresh().state_dict())


def promise_gradients_reach_every_parameter(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.25 if subject.is_whole else 0.5)
    (model.train()(INPUTS).square().sum() + controller.loss()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


def promise_state_dict_into_a_fresh_model_gives_the_same_output(subject: Subject) -> None:
    controller, model = subject.applied()
    controller.scheduler.epoch_step()
    reach(controller, 0.5)
    other_controller, other = subject.applied()
    other.load_state_dict(model.state_dict())
    other_controller.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    assert torch.equal(other(INPUTS), model(INPUTS))
    assert other_controller.level == controller.level
    assert other_controller.statistics().to_dict() == controller.statistics().to_dict()
    for one in (controller, other_controller):
        one.scheduler.epoch_step()
    assert torch.equal(other(INPUTS), model(INPUTS))


def promise_the_models_state_dict_alone_resumes_the_schedule(subject: Subject) -> None:
    """As every tutorial of PyTorch resumes: model.load_state_dict, and nothing of ours."""
    partner = SUBJECTS[1] if subject.name == "magnitude_sparsity" else SUBJECTS[0]
    for others in ((), (partner,)):
        controller, model = subject.applied(*others)
        for _ in range(2):
            controller.scheduler.epoch_step()
            controller.scheduler.step()
        file = io.BytesIO(safetensors.torch.save(model.state_dict()))
        resumed_controller, resumed = subject.applied(*others)
        resumed.load_state_dict(safetensors.torch.load(file.getvalue()))
        assert resumed_controller.state_dict() == controller.state_dict()
        for one in (controller, resumed_controller):
            one.scheduler.epoch_step()
        assert resumed_controller.state_dict() == controller.state_dict()
        assert torch.equal(resumed(INPUTS), model(INPUTS))


def promise_pickle_and_deepcopy_keep_the_output(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.5)
    controller.loss()
    for again in (copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))):  # noqa: S301
        copied_controller, copied = again((controller, model))
        assert torch.equal(copied(INPUTS), model(INPUTS))
        assert _equal(copied.state_dict(), model.state_dict())
        reach(copied_controller, 0.0)
        assert torch.equal(copied(INPUTS), fresh()(INPUTS))


def promise_config_survives_json(subject: Subject) -> None:
    config = NNCFConfig.from_dict({"compression": subject.item})
    assert NNCFConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def promise_statistics_are_in_range_and_monotone(subject: Subject) -> None:
    controller, _ = subject.applied()
    assert str(controller.statistics())
    if not subject.has_level:
        return
    levels = []
    for level in (0.0, 0.25, 0.5, 0.75):
        reach(controller, level)
        levels.append(controller.statistics().to_dict()["level"])
    assert levels[0] == 0
    steps = {a == b for a, b in itertools.pairwise(levels)}
    assert steps == ({True, False} if subject.is_whole else {False})
    assert levels == sorted(levels)
    assert all(0 <= level < 1 for level in levels)


def promise_the_schedule_rises_to_its_target(subject: Subject) -> None:
    controller, _ = subject.applied()
    seen = []
    for _ in range(6):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        seen.append(controller.target_level)
    assert all(a <= b for a, b in itertools.pairwise(seen))
    assert seen[-1] == seen[-2] == controller.scheduler.level == controller.scheduler.final_level
    assert seen[-1] > seen[0] or not subject.has_level
    assert controller.compression_stage() is CompressionStage.FULLY_COMPRESSED


def promise_it_composes_with_every_other(subject: Subject) -> None:
    # a pair is tried once, in both orders
    later = SUBJECTS[SUBJECTS.index(subject) + 1 :] if subject in SUBJECTS else SUBJECTS[:3]
    for other in (each for each in later if each.name != subject.name):
        alone = []
        for one in (subject, other):
            controller, model = one.applied()
            reach(controller, 0.5)
            if not one.rounds:
                alone.append(strip(model))
        outputs = []
        for first in (True, False):
            controller, model = subject.applied(other, first=first)
            assert torch.equal(model(INPUTS), fresh()(INPUTS))
            reach(controller, 0.5)
            outputs.append(model(INPUTS))
            both = dict(baked(model).named_parameters())
            for single in alone:
                for name, parameter in single.named_parameters():
                    assert not both[name][parameter == 0].any(), name
        assert torch.equal(*outputs)


def promise_strip_agrees(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.5)
    if subject.rounds:
        with pytest.raises(TracingError, match="changes an activation"):
            strip(model)
        return
    bare = strip(model)
    assert type(bare) is Net
    assert torch.equal(bare(INPUTS), model(INPUTS))
    assert bare.state_dict().keys() == fresh().state_dict().keys()


def promise_mode_and_dtype_change_nothing(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.5)
    before = baked(model).state_dict()
    model.train()
    assert _equal(baked(model).state_dict(), before)
    model.double().float().cpu().eval()
    assert _equal(baked(model).state_dict(), before)


def promise_removing_restores_the_original(subject: Subject) -> None:
    controller, model = subject.applied()
    reach(controller, 0.5)
    model.nncf.remove(subject.name)
    assert torch.equal(model(INPUTS), fresh()(INPUTS))
    bare = unwrap(model)
    assert type(bare) is Net
    assert _equal(bare.state_dict(), fresh().state_dict())


PROMISES = tuple(function for name, function in list(globals().items()) if name[:8] == "promise_")


def _plan(subject: Subject) -> tuple[NNCFNetwork, Sequence[Insertion]]:
    model = wrap(fresh(), INPUTS)
    (config,) = NNCFConfig.from_dict({"compression": subject.item}).compression
    return model, builder_for(config).plan(model)


def _equal(state: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return state.keys() == other.keys() and all(torch.equal(state[k], other[k]) for k in state)


def test_every_registered_algorithm_is_a_subject() -> None:
    assert set(registered_algorithms()) == {subject.name for subject in SUBJECTS}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "subject",
    SUBJECTS,
    ids=[
        "magnitude",
        "filter",
        "local",
        "macs",
        "unconstrained_input",
        "unconstrained_output",
        "heads",
        "neurons",
        "lamp",
        "norm_scale",
        "largest",
        "random",
        "branches",
        "structure",
        "blocks",
        "learned",
        "lc",
        "n_of_m",
        "movement",
        "clustering",
        "quantization",
        "constant",
        "mse",
        "softmax",
    ],
)
def test_it_keeps_its_promise(subject: Subject, promise: Callable[[Subject], None]) -> None:
    promise(subject)


# Teeth: a sound toy algorithm, and one broken variant of it for each promise.


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

    @override
    def to_dict(self) -> dict[str, Any]:
        return {key: value for key, value in super().to_dict().items() if key != "power"}


class ToyHook(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones_like(weight))

    @override
    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.scale

    def set(self, level: float) -> None:
        self.scale.view(-1)[: int(level * self.scale.numel())] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyStatistics(Statistics):
    level: float

    @override
    def to_str(self) -> str:
        return f"{self.level}"


class ToyController(Controller):
    def __init__(self, model: nn.Module, config: ToyConfig, hooks: list[ToyHook]) -> None:
        super().__init__(model, "toy", [config])
        self.hooks = hooks
        self.scheduler = EpochScheduler(self, _Rising(target=0.5), 100)

    @override
    def statistics(self) -> ToyStatistics:
        return ToyStatistics(level=self.level)

    @override
    def _apply(self, level: float) -> None:
        for hook in self.hooks:
            hook.scale.fill_(1)
            hook.set(level)


@dataclasses.dataclass(frozen=True)
class _Rising(BaselineSchedule):
    @override
    def level(self, epoch: float) -> float:
        return self.target * min(epoch / 3, 1)


class ToyBuilder(Builder[ToyConfig]):
    hook: ClassVar[type[ToyHook]] = ToyHook
    handle: ClassVar[type[ToyController]] = ToyController
    priority: ClassVar[int] = Priority.DEFAULT

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return [
            Insertion(
                WeightSite.of(name),
                self.hook(parameter.detach()),
                self.priority,
                "toy",
            )
            for name, parameter in model.named_parameters()
            if parameter.ndim > 1
        ]

    @override
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
        forward=lambda hook, weight: weight.detach() * hook.scale,
    ),
    "state_dict_into_a_fresh_model_gives_the_same_output": _with_hook(
        __init__=_outside_the_state,
    ),
    "the_models_state_dict_alone_resumes_the_schedule": _with_controller(
        load_state_dict=lambda *_: None,
    ),
    "pickle_and_deepcopy_keep_the_output": type(
        "Broken", (ToyBuilder,), {"hook": UnpicklableHook}
    ),
    "statistics_are_in_range_and_monotone": _with_controller(
        statistics=lambda controller: ToyStatistics(level=2 * controller.level),
    ),
    "the_schedule_rises_to_its_target": _with_controller(__init__=_falling),
    "it_composes_with_every_other": _with_hook(
        priority=100,
        __init__=_captured,
        forward=lambda hook, weight: hook.captured * hook.scale + 0 * weight,
    ),
    "strip_agrees": _with_hook(forward=lambda _, weight: weight * next(_CALLS)),
    "mode_and_dtype_change_nothing": _with_hook(train=_forgets),
    "removing_restores_the_original": _with_controller(_apply=_in_place),
}


@pytest.fixture
def toy() -> Iterator[Callable[[type[ToyBuilder]], Subject]]:
    def enter(builder: type[ToyBuilder]) -> Subject:
        register_algorithm(ToyConfig)(builder)
        return Subject({"algorithm": "toy"})

    yield enter
    unregister_algorithm("toy")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda one: one.__name__)
def test_a_sound_toy_algorithm_keeps_it(
    toy: Callable[[type[ToyBuilder]], Subject],
    promise: Callable[[Subject], None],
) -> None:
    promise(toy(ToyBuilder))


@pytest.mark.parametrize("name", sorted(TEETH))
def test_an_algorithm_that_breaks_it_is_caught(
    toy: Callable[[type[ToyBuilder]], Subject],
    name: str,
) -> None:
    subject = toy(TEETH[name])
    # pickle has no one error for what it cannot take
    unpicklable = (AttributeError, pickle.PicklingError) if name.startswith("pickle") else ()
    with pytest.raises((AssertionError, StorageError, *unpicklable)):
        globals()[f"promise_{name}"](subject)


def test_a_config_that_loses_a_key_is_caught() -> None:
    register_algorithm(LossyConfig)(ToyBuilder)
    try:
        with pytest.raises(AssertionError):
            promise_config_survives_json(Subject({"algorithm": "lossy", "power": 3}))
    finally:
        unregister_algorithm("lossy")


def test_every_promise_has_a_tooth() -> None:
    bitten = {f"promise_{name}" for name in (*TEETH, "config_survives_json")}
    assert bitten == {promise.__name__ for promise in PROMISES}
