"""What every controller does, alone and as one of several."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
)

import nncfx
from nncfx.controllers import (
    BaselineSchedule,
    CompositeController,
    Controller,
    EpochScheduler,
    Statistics,
)
from nncfx.errors import ArgumentError, CompressionError, GraphError, StorageError
from nncfx.network import NNCFNetwork


@dataclasses.dataclass(frozen=True, kw_only=True)
class Applied(Statistics):
    levels: tuple[float, ...]

    def to_str(self) -> str:
        return f"levels {self.levels}"


class Recorder(Controller):
    """Remembers which levels were applied; its loss is one."""

    def __init__(self, name: str = "recorder") -> None:
        super().__init__(nn.Linear(1, 1), name, [])
        self.applied: list[float] = []
        self.scheduler = EpochScheduler(self, BaselineSchedule(target=0.5), freeze_epoch=0)
        self.compression_loss = lambda: torch.tensor(1.0)

    def _apply(self, level: float) -> None:
        self.applied.append(level)

    def statistics(self) -> Applied:
        return Applied(levels=tuple(self.applied))


class Fixed(Recorder):
    """Has no level."""

    has_level = False


def composite() -> CompositeController:
    return CompositeController(nn.Linear(1, 1), [Recorder("a"), Recorder("b")])


def test_one_algorithm_is_found_by_its_name_as_among_several() -> None:
    controller = Recorder("a")
    assert controller["a"] is controller
    with pytest.raises(ArgumentError, match=r"carries no 'b'; it carries \['a'\]"):
        controller["b"]


@pytest.mark.parametrize("level", [-0.1, 1.0, 30, float("nan")])
def test_what_is_no_level_is_refused_and_changes_nothing(level: float) -> None:
    controller = Recorder()
    with pytest.raises(ArgumentError, match=r"lies in \[0, 1\)"):
        controller.level = level
    assert (controller.level, controller.applied) == (0, [])


def test_setting_the_level_applies_it_even_if_it_is_the_same() -> None:
    controller = Recorder()
    controller.level = 0.3
    controller.level = 0.3
    assert controller.applied == [0.3, 0.3]


def test_loading_a_state_applies_nothing() -> None:
    controller, other = Recorder(), Recorder()
    controller.scheduler.epoch_step()
    other.load_state_dict(controller.state_dict())
    assert other.level == 0.5
    assert other.applied == []


def test_the_loss_of_an_algorithm_without_one_is_zero() -> None:
    controller = CompositeController(nn.Linear(1, 1), [])
    assert controller.loss().item() == 0


def test_the_loss_of_several_is_their_sum() -> None:
    assert composite().loss().item() == 2


def test_the_level_of_several_is_the_highest_and_sets_all() -> None:
    controller = composite()
    controller["a"].level = 0.2
    assert controller.level == 0.2
    controller.level = 0.4
    assert [part.level for part in controller.parts.values()] == [0.4, 0.4]


def test_several_have_a_level_where_one_of_them_has() -> None:
    assert CompositeController(nn.Linear(1, 1), [Fixed("a"), Recorder("b")]).has_level
    none = CompositeController(nn.Linear(1, 1), [Fixed("a"), Fixed("b")])
    assert not none.has_level
    with pytest.raises(ArgumentError, match="'composite' has no level"):
        none.level = 0.5


def test_the_scheduler_of_several_drives_all() -> None:
    controller = composite()
    controller.scheduler.epoch_step()
    assert [part.level for part in controller.parts.values()] == [0.5, 0.5]


def test_the_state_of_several_goes_to_each() -> None:
    controller, other = composite(), composite()
    controller.scheduler.epoch_step()
    other.load_state_dict(controller.state_dict())
    assert other.state_dict() == controller.state_dict()


def test_statistics_of_several_are_by_algorithm() -> None:
    controller = composite()
    controller["b"].level = 0.1
    statistics = controller.statistics()
    found = {name: one["levels"] for name, one in statistics.to_dict().items()}
    assert found == {"a": (), "b": (0.1,)}
    assert str(statistics) == "a\nlevels ()\n\nb\nlevels (0.1,)"
    assert statistics["b"].to_dict()["levels"] == (0.1,)


def test_an_algorithm_that_was_not_applied_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"carries no 'c'; it carries \['a', 'b'\]"):
        composite()["c"]


@pytest.mark.parametrize("state", [{}, {"algorithm": "other", "level": 0, "scheduler": {}}])
def test_a_state_that_does_not_fit_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(StorageError, match="does not fit"):
        Recorder().load_state_dict(state)


def test_a_state_that_is_no_dict_is_refused() -> None:
    with pytest.raises(StorageError, match="is a list; it must be the dict"):
        Recorder().load_state_dict([])  # type: ignore[arg-type]


def test_a_part_follows_a_schedule_that_is_put_in_place_of_its_own() -> None:
    controller = composite()
    part = controller["a"]
    part.scheduler = EpochScheduler(part, BaselineSchedule(target=0.25), freeze_epoch=9)
    controller.scheduler.epoch_step()
    assert (part.level, controller["b"].level) == (0.25, 0.5)


def test_the_stage_goes_from_nothing_to_full_and_is_partial_where_parts_differ() -> None:
    controller = composite()
    stages = [controller.compression_stage()]
    controller["a"].level = 0.1
    stages.append(controller.compression_stage())
    controller.level = 0.5
    stages.append(controller.compression_stage())
    assert [stage.value for stage in stages] == [0, 1, 2]


def test_a_part_without_a_level_is_left_alone_when_the_level_of_all_is_set() -> None:
    fixed = Fixed("fixed")
    controller = CompositeController(nn.Linear(1, 1), [Recorder("a"), fixed])
    controller.level = 0.5
    assert fixed.applied == []
    with pytest.raises(ArgumentError, match="'fixed' has no level"):
        fixed.level = 0.5


def test_a_held_schedule_only_counts_and_its_state_says_so() -> None:
    controller = composite()
    controller.scheduler.hold()
    controller.scheduler.epoch_step()
    assert controller.level == 0
    again = composite()
    again.load_state_dict(controller.state_dict())
    again.scheduler.epoch_step()
    assert (again.level, again.scheduler.current_epoch) == (0, 1)


def test_a_name_of_nncf_is_an_error_that_says_what_it_is_here() -> None:
    made = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller, _ = nncfx.create_compressed_model(nn.Linear(4, 4), made, torch.ones(1, 4))
    expected = (
        "'MagnitudeSparsityController' object has no attribute 'disable_scheduler'. NNCF's "
        "'disable_scheduler' is here: scheduler.hold()."
    )
    with pytest.raises(AttributeError) as caught:
        getattr(controller, "disable_scheduler")  # noqa: B009 (no such name)
    assert str(caught.value) == expected
    assert not hasattr(controller, "__no_such_protocol__")


class Mistaken(Recorder):
    """A user's controller, with a mistake in a property."""

    @property
    def half(self) -> float:
        return self.levle / 2


def test_a_mistake_in_a_property_is_told_where_it_was_made() -> None:
    with pytest.raises(AttributeError, match="no attribute 'levle'"):
        Mistaken().half  # noqa: B018 (reading it is the point)


SPARSE = {
    "algorithm": "magnitude_sparsity",
    "sparsity_init": 0.1,
    "params": {
        "schedule": "multistep",
        "multistep_steps": [1],
        "multistep_sparsity_levels": [0.1, 0.8],
    },
}
ROUNDED = {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}}
CARRIED = "_extra_state"


def sparse(*more: dict[str, Any], item: dict[str, Any] = SPARSE) -> tuple[Controller, NNCFNetwork]:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    config = {"compression": [item, *more]}
    return nncfx.create_compressed_model(dense, config, torch.ones(2, 8))


def train(controller: Controller, model: nn.Module, epochs: int = 1) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        controller.scheduler.epoch_step()
        for _ in range(2):
            controller.scheduler.step()
            (model(torch.ones(2, 8)).square().sum() + controller.loss()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return optimizer


def without_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """What a file of an earlier release has."""
    return {key: one for key, one in model.state_dict().items() if not key.endswith(CARRIED)}


@pytest.mark.parametrize("others", [(), (ROUNDED,)], ids=["alone", "composite"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_resuming_as_tutorials_do_goes_on_with_the_schedule(
    others: tuple[dict[str, Any], ...], moment: str
) -> None:
    controller, model = sparse(*others)
    optimizer = train(controller, model, epochs=2)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again, resumed = sparse(*others)
    if moment == "after":
        train(again, resumed)
    resumed.load_state_dict(saved["model"])
    torch.optim.SGD(resumed.parameters(), lr=0.1).load_state_dict(saved["optimizer"])
    for one in (controller, again):
        one.scheduler.epoch_step()
    # a composite's level is the highest of its parts
    assert again.level == controller.level == pytest.approx(0.8, abs=0.01)
    assert again.state_dict() == controller.state_dict()
    zeros = [int((one.hook.mask == 0).sum()) for one in resumed.nncf.hooks[:2]]
    assert sum(zeros) == int(0.8 * (8 * 16 + 16 * 4))


@pytest.mark.parametrize("others", [(), (ROUNDED,)], ids=["alone", "composite"])
@pytest.mark.parametrize("call", ["epoch_step", "step"])
def test_masks_of_a_file_without_a_schedule_do_not_begin_it_again(
    others: tuple[dict[str, Any], ...], call: str
) -> None:
    controller, model = sparse(*others)
    train(controller, model, epochs=2)
    again, resumed = sparse(*others)
    assert resumed.load_state_dict(without_state(model)) == ([], [])
    with pytest.raises(CompressionError, match=r"'magnitude_sparsity'.* again at level 0\.1"):
        getattr(again.scheduler, call)()
    again.load_state_dict(controller.state_dict())
    getattr(again.scheduler, call)()
    assert again.level == controller.level


def test_who_sets_the_level_begins_a_schedule_on_old_masks() -> None:
    controller, model = sparse()
    train(controller, model, epochs=2)
    again, resumed = sparse()
    resumed.load_state_dict(without_state(model))
    again.level = 0.1
    again.scheduler.epoch_step()
    assert again.level == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("is_first", [False, True])
def test_files_without_a_schedule_load_beside_the_controllers_state(is_first: bool) -> None:
    controller, model = sparse()
    train(controller, model, epochs=2)
    again, resumed = sparse()
    if is_first:
        again.load_state_dict(controller.state_dict())
    resumed.load_state_dict(without_state(model))
    if not is_first:
        again.load_state_dict(controller.state_dict())
    again.scheduler.epoch_step()
    assert again.level == pytest.approx(0.8, abs=0.01)


def test_masks_of_the_same_level_may_come_without_a_schedule() -> None:
    _, model = sparse()
    again, resumed = sparse()
    resumed.load_state_dict(without_state(model))
    again.scheduler.epoch_step()
    assert again.level == pytest.approx(0.1, abs=0.01)


def test_the_state_of_another_schedule_is_an_error_with_the_fix() -> None:
    _, model = sparse(item={"algorithm": "magnitude_sparsity", "params": {"schedule": "adaptive"}})
    again, resumed = sparse()
    with pytest.raises(RuntimeError, match="Build the model with the config of the one"):
        resumed.load_state_dict(model.state_dict())
    resumed.load_state_dict(without_state(model))
    assert again.level == pytest.approx(0.1, abs=0.01)


def test_a_part_that_is_loaded_alone_moves_the_whole() -> None:
    controller, model = sparse(ROUNDED)
    train(controller, model, epochs=2)
    again, _ = sparse(ROUNDED)
    state = controller["magnitude_sparsity"].state_dict()
    again["magnitude_sparsity"].load_state_dict(state)
    again.scheduler.epoch_step()
    assert again.scheduler.current_epoch == 2
    assert again["magnitude_sparsity"].level == pytest.approx(0.8, abs=0.01)


def test_an_average_of_weights_does_not_bring_an_old_schedule_back() -> None:
    controller, model = sparse()
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    train(controller, model, epochs=2)
    average.update_parameters(model)
    nncfx.controllers.keep_hooks(average.module, model)
    model.load_state_dict(average.module.state_dict())
    controller.scheduler.epoch_step()
    assert (controller.scheduler.current_epoch, round(controller.level, 1)) == (2, 0.8)


class Plain(Controller):
    """Has neither a level nor anything of its own, but for statistics."""

    has_level = False

    def statistics(self) -> Applied:
        return Applied(levels=())


def test_a_controller_without_a_level_follows_epochs_by_itself() -> None:
    controller = Plain(nn.Linear(1, 1), "plain", [])
    for _ in range(3):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
    assert controller.scheduler.current_epoch == 2
    with pytest.raises(ArgumentError, match="'plain' has no level"):
        controller.level = 0.5


def test_a_level_that_no_method_reaches_is_told() -> None:
    class Levelled(Plain):
        has_level = True

    with pytest.raises(CompressionError, match=r"Levelled .* Define its _apply\(level\)"):
        Levelled(nn.Linear(1, 1), "levelled", []).level = 0.5


@pytest.mark.parametrize(
    "algorithm", ["magnitude_sparsity", "rb_sparsity", "filter_pruning", "quantization"]
)
def test_a_wrapper_put_around_a_compressed_layer_is_told(algorithm: str) -> None:
    x = torch.ones(2, 8)
    block = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    config = {"compression": {"algorithm": algorithm}}
    controller, model = nncfx.create_compressed_model(
        nn.Sequential(block, nn.ReLU()), config, x, calibration_batches=[x]
    )
    apply_activation_checkpointing(model, check_fn=lambda one: one is block)
    with pytest.raises(GraphError, match=r"'0\.[02]', whose 'weight' .* Put that there before"):
        controller.strip()
    if controller.has_level:
        with pytest.raises(GraphError, match=r"'0\.[02]', whose 'weight' has a hook, has a new"):
            controller.level = 0.5
