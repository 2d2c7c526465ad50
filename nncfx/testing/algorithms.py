"""The promises of every algorithm, for algorithms of other packages and for nncfx's own.

Each promise is a function of an `AlgorithmSubject` that raises `AssertionError` if the algorithm
breaks it. With pytest::

    @pytest.mark.parametrize("promise", ALGORITHM_PROMISES)
    def test_my_algorithm_keeps_its_promise(promise):
        promise(AlgorithmSubject({"algorithm": "my_sparsity"}))

`pytest.register_assert_rewrite("nncfx.testing")` in a conftest shows the values in failures.
"""

import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import safetensors.torch
import torch
from torch import Tensor, nn

from nncfx.config import NNCFConfig
from nncfx.controllers import CompositeController, CompressionStage, Controller, builder_for
from nncfx.errors import ArgumentError, NNCFXError, TracingError
from nncfx.network import NNCFNetwork, strip, unwrap, wrap
from nncfx.testing.models import ConvAttentionNet, example_inputs
from nncfx.testing.other_device import checked_device
from nncfx.testing.refusals import changed, check_refused, paths
from nncfx.tracing import Insertion, WeightSite
from nncfx.training.create import create_compressed_model

__all__ = ["ALGORITHM_PROMISES", "PARTNERS", "AlgorithmSubject"]

_SMALL_LOSS: Final = 0.05
_MOST_STEPS: Final = 200
_SAME: Final = 1e-3
"""How much outputs may differ if sums are rounded differently; learned scores amplify this."""


@dataclasses.dataclass(frozen=True)
class AlgorithmSubject:
    """An algorithm with its config.

    Its schedule reaches its target in epoch 3 or earlier.

    Attributes:
        item: The item of the config.
        has_level: Whether the algorithm has a level. An algorithm without one neither reaches a
            level nor allows setting one; it takes effect from its epoch 1 on.
        rounds: Whether it creates zeros by rounding, and changes activations.
        is_whole: Whether it prunes whole branches, of which the model has two: it prunes in two
            steps, and layers that are entirely removed get no gradients.
        partners: The algorithms that it must compose with; `PARTNERS` if empty.
    """

    item: Mapping[str, Any]
    has_level: bool = True
    rounds: bool = False
    is_whole: bool = False
    partners: tuple["AlgorithmSubject", ...] = ()

    @property
    def name(self) -> str:
        """The name of the algorithm."""
        return str(self.item["algorithm"])

    def applied(
        self,
        *others: "AlgorithmSubject",
        first: bool = True,
        device: torch.device = torch.device("cpu"),  # noqa: B008 (immutable)
    ) -> tuple[Controller, NNCFNetwork]:
        """Return controller and model with this algorithm applied, before or after `others`."""
        items = [self.item, *(other.item for other in others)]
        config = {"compression": items if first else items[::-1]}
        return create_compressed_model(_fresh().to(device), config, example_inputs().to(device))


PARTNERS: Final = (
    AlgorithmSubject({"algorithm": "magnitude_sparsity", "params": {"sparsity_target_epoch": 3}}),
    AlgorithmSubject(
        {
            "algorithm": "filter_pruning",
            "params": {"align": 1, "pruning_steps": 3, "prune_first_conv": True},
        }
    ),
)
"""What an algorithm must compose with: masks of single weights, and of channels."""


def _fresh() -> ConvAttentionNet:
    return ConvAttentionNet.fresh()


def _reach(controller: Controller, level: float) -> None:
    """Set the level; if it results from a loss, train the algorithm's own parameters."""
    for part in controller.parts.values() if isinstance(controller, CompositeController) else ():
        if not part.has_level:
            part.scheduler.epoch_step(1 if level else 0)
    if not controller.has_level:
        check_refused(lambda: setattr(controller, "level", level), ArgumentError, "no level")
        controller.scheduler.epoch_step(1 if level else 0)
        return
    controller.level = level
    learned = [p for g in controller.parameter_groups(lr=0.05)[1:] for p in g["params"]]
    if not learned:
        return
    optimizer = torch.optim.Adam(learned, lr=0.05)
    loss = controller.loss()
    for _ in range(_MOST_STEPS):
        if loss < _SMALL_LOSS:
            return
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        loss = controller.loss()
    raise AssertionError(f"the loss is {float(loss)}, far from level {level}")


def _baked(model: NNCFNetwork) -> nn.Module:
    """Return the model with its hooks baked into the weights, and no other hook."""
    copied = copy.deepcopy(model)
    weights = [one for one in copied.nncf.hooks if isinstance(one.site, WeightSite)]
    for algorithm in {one.algorithm for one in copied.nncf.hooks}:
        copied.nncf.remove(algorithm)
    copied.nncf.register(weights)
    copied.nncf.commit()
    return strip(copied)


def level_zero_is_the_identity_bitwise(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.5)
    _reach(controller, 0.0)
    assert torch.equal(model(example_inputs()), _fresh()(example_inputs()))
    assert torch.equal(model.train()(example_inputs()), _fresh().train()(example_inputs()))


def a_high_level_changes_the_output(subject: AlgorithmSubject) -> None:
    if not subject.has_level:
        return
    controller, model = subject.applied()
    _reach(controller, 0.75)
    assert not torch.allclose(model(example_inputs()), _fresh()(example_inputs()), rtol=1e-3)


def planning_is_deterministic(subject: AlgorithmSubject) -> None:
    first, second = (_plan(subject)[1] for _ in range(2))
    assert [(one.site, one.priority, one.algorithm) for one in first] == [
        (one.site, one.priority, one.algorithm) for one in second
    ]
    for one, other in zip(first, second, strict=True):
        assert _equal(one.hook.state_dict(), other.hook.state_dict())


def planning_touches_nothing(subject: AlgorithmSubject) -> None:
    model, _ = _plan(subject)
    assert model.nncf.hooks == ()
    assert _equal(model.state_dict(), _fresh().state_dict())


def gradients_reach_every_parameter(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.25 if subject.is_whole else 0.5)
    loss = model.train()(example_inputs()).square().sum() + controller.loss()
    torch.autograd.backward(loss)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert parameter.grad.any(), name


def state_dict_into_a_fresh_model_gives_the_same_output(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    controller.scheduler.epoch_step()
    _reach(controller, 0.5)
    other_controller, other = subject.applied()
    other.load_state_dict(model.state_dict())
    other_controller.load_state_dict(json.loads(json.dumps(controller.state_dict())))
    assert torch.equal(other(example_inputs()), model(example_inputs()))
    assert other_controller.level == controller.level
    assert other_controller.statistics().to_dict() == controller.statistics().to_dict()
    for one in (controller, other_controller):
        one.scheduler.epoch_step()
    assert torch.equal(other(example_inputs()), model(example_inputs()))


def of_damaged_states_only_errors_of_nncfx_tell(subject: AlgorithmSubject) -> None:
    controller, _ = subject.applied()
    controller.scheduler.epoch_step()
    state = controller.state_dict()
    for path in [(), *paths(state)]:
        with contextlib.suppress(NNCFXError):
            controller.load_state_dict(changed(state, path, {"x": "y"}))
            controller.scheduler.epoch_step()
            controller.scheduler.step()


def the_models_state_dict_alone_resumes_the_schedule(subject: AlgorithmSubject) -> None:
    """As in PyTorch's tutorials: model.load_state_dict, without functions of nncfx."""
    partner = next(one for one in PARTNERS if one.name != subject.name)
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
        assert torch.equal(resumed(example_inputs()), model(example_inputs()))


def pickle_and_deepcopy_keep_the_output(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.5)
    controller.loss()
    ways: tuple[Callable[[Any], Any], ...] = (copy.deepcopy, _pickled)
    for again in ways:
        copied_controller, copied = again((controller, model))
        assert torch.equal(copied(example_inputs()), model(example_inputs()))
        assert _equal(copied.state_dict(), model.state_dict())
        _reach(copied_controller, 0.0)
        assert torch.equal(copied(example_inputs()), _fresh()(example_inputs()))


def _pickled(value: object) -> object:
    return pickle.loads(pickle.dumps(value))  # noqa: S301 (pickled in this line)


def config_survives_json(subject: AlgorithmSubject) -> None:
    config = NNCFConfig.from_dict({"compression": subject.item})
    assert NNCFConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def statistics_survive_json(subject: AlgorithmSubject) -> None:
    controller, _ = subject.applied()
    told = controller.statistics().to_dict()
    assert json.loads(json.dumps(told)).keys() == told.keys()


def statistics_are_in_range_and_monotone(subject: AlgorithmSubject) -> None:
    controller, _ = subject.applied()
    assert str(controller.statistics())
    if not subject.has_level:
        return
    levels = []
    for level in (0.0, 0.25, 0.5, 0.75):
        _reach(controller, level)
        levels.append(controller.statistics().to_dict()["level"])
    assert levels[0] == 0
    steps = {a == b for a, b in itertools.pairwise(levels)}
    assert steps == ({True, False} if subject.is_whole else {False})
    assert levels == sorted(levels)
    assert all(0 <= level < 1 for level in levels)


def the_schedule_rises_to_its_target(subject: AlgorithmSubject) -> None:
    controller, _ = subject.applied()
    seen = []
    for _ in range(6):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        seen.append(controller.target_level)
    assert all(a <= b for a, b in itertools.pairwise(seen))
    assert seen[-1] == seen[-2] == controller.scheduler.level == controller.scheduler.final_level
    assert seen[-1] > seen[0] or not subject.has_level, (
        "no epoch raises the level; an algorithm without one is AlgorithmSubject(has_level=False)"
    )
    if subject.has_level:
        _reach(controller, controller.scheduler.final_level)
    assert controller.compression_stage() is CompressionStage.FULLY_COMPRESSED


def it_composes_with_others(subject: AlgorithmSubject) -> None:
    for other in (each for each in subject.partners or PARTNERS if each.name != subject.name):
        alone = [_alone(json.dumps(one.item)) for one in (subject, other) if not one.rounds]
        outputs = []
        for first in (True, False):
            controller, model = subject.applied(other, first=first)
            assert torch.equal(model(example_inputs()), _fresh()(example_inputs()))
            _reach(controller, 0.5)
            outputs.append(model(example_inputs()))
            both = dict(_baked(model).named_parameters())
            for single in alone:
                for name, parameter in single.named_parameters():
                    assert not both[name][parameter == 0].any(), name
        assert torch.equal(*outputs)


@functools.cache  # every algorithm is the partner of all the others
def _alone(item: str) -> nn.Module:
    """Return the plain model after applying only this algorithm, a config item in JSON."""
    controller, model = AlgorithmSubject(json.loads(item)).applied()
    _reach(controller, 0.5)
    return strip(model)


def strip_agrees(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.5)
    if subject.rounds:
        check_refused(lambda: strip(model), TracingError, "changes an activation")
        return
    bare = strip(model)
    assert type(bare) is ConvAttentionNet
    assert torch.equal(bare(example_inputs()), model(example_inputs()))
    assert bare.state_dict().keys() == _fresh().state_dict().keys()


def mode_and_dtype_change_nothing(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.5)
    before = _baked(model).state_dict()
    model.train()
    assert _equal(_baked(model).state_dict(), before)
    model.double().float().cpu().eval()
    assert _equal(_baked(model).state_dict(), before)


def another_device_computes_the_same(subject: AlgorithmSubject) -> None:
    """Tensors computed besides the model, such as a score, a range or a loss, move with it."""
    here, counted = _after_a_step(subject, torch.device("cpu"))
    for float64 in (True, False):
        with checked_device(float64=float64) as device:
            elsewhere, counted_there = _after_a_step(subject, device)
        torch.testing.assert_close(elsewhere, here, rtol=0, atol=_SAME)
        assert counted_there == counted


def _after_a_step(
    subject: AlgorithmSubject, device: torch.device
) -> tuple[Tensor, dict[str, Any]]:
    """Return the outputs and the statistics after an epoch start, a level and a backward."""
    torch.manual_seed(0)
    controller, model = subject.applied(device=device)
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    _reach(controller, 0.5)
    images = example_inputs().to(device)
    torch.autograd.backward(model.train()(images).square().sum() + controller.loss())
    return _baked(model.eval())(images).cpu(), controller.statistics().to_dict()


def removing_restores_the_original(subject: AlgorithmSubject) -> None:
    controller, model = subject.applied()
    _reach(controller, 0.5)
    model.nncf.remove(subject.name)
    assert torch.equal(model(example_inputs()), _fresh()(example_inputs()))
    bare = unwrap(model)
    assert type(bare) is ConvAttentionNet
    assert _equal(bare.state_dict(), _fresh().state_dict())


ALGORITHM_PROMISES: Final[tuple[Callable[[AlgorithmSubject], None], ...]] = (
    level_zero_is_the_identity_bitwise,
    a_high_level_changes_the_output,
    planning_is_deterministic,
    planning_touches_nothing,
    gradients_reach_every_parameter,
    state_dict_into_a_fresh_model_gives_the_same_output,
    of_damaged_states_only_errors_of_nncfx_tell,
    the_models_state_dict_alone_resumes_the_schedule,
    pickle_and_deepcopy_keep_the_output,
    config_survives_json,
    statistics_survive_json,
    statistics_are_in_range_and_monotone,
    the_schedule_rises_to_its_target,
    it_composes_with_others,
    strip_agrees,
    mode_and_dtype_change_nothing,
    another_device_computes_the_same,
    removing_restores_the_original,
)
"""All promises; each is named after what it promises."""


def _plan(subject: AlgorithmSubject) -> tuple[NNCFNetwork, Sequence[Insertion]]:
    model = wrap(_fresh(), example_inputs())
    (config,) = NNCFConfig.from_dict({"compression": subject.item}).compression
    return model, builder_for(config).plan(model)


def _equal(state: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return state.keys() == other.keys() and all(torch.equal(state[k], other[k]) for k in state)
