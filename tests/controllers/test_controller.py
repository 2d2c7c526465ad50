"""What every controller does, alone and as one of several."""

import dataclasses

import pytest
import torch
from torch import nn
from typing_extensions import override

import nncfx
from nncfx.controllers import (
    BaselineSchedule,
    CompositeController,
    Controller,
    EpochScheduler,
    Statistics,
)
from nncfx.errors import ArgumentError, StorageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Applied(Statistics):
    levels: tuple[float, ...]

    @override
    def to_str(self) -> str:
        return f"levels {self.levels}"


class Recorder(Controller):
    """Remembers which levels were applied; its loss is one."""

    def __init__(self, name: str = "recorder") -> None:
        super().__init__(nn.Linear(1, 1), name, [])
        self.applied: list[float] = []
        self.scheduler = EpochScheduler(self, BaselineSchedule(target=0.5), freeze_epoch=0)
        self.compression_loss = lambda: torch.tensor(1.0)

    @override
    def _apply(self, level: float) -> None:
        self.applied.append(level)

    @override
    def statistics(self) -> Applied:
        return Applied(levels=tuple(self.applied))


class Fixed(Recorder):
    """Has no level."""

    has_level = False


def composite() -> CompositeController:
    return CompositeController(nn.Linear(1, 1), [Recorder("a"), Recorder("b")])


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
    assert statistics.to_dict() == {"a": {"levels": ()}, "b": {"levels": (0.1,)}}
    assert str(statistics) == "a\nlevels ()\n\nb\nlevels (0.1,)"
    assert statistics["b"].to_dict() == {"levels": (0.1,)}


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
