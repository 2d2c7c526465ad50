"""What schedulers do to a target, epoch by epoch and step by step."""

from typing import Any

import pytest

from nncfx.controllers import (
    AdaptiveScheduler,
    BaselineSchedule,
    CompositeScheduler,
    EpochScheduler,
    PolynomialSchedule,
    Scheduler,
    StepScheduler,
    TrainingLoopWarning,
)
from nncfx.errors import ArgumentError, StorageError

LINE = PolynomialSchedule(initial=0, target=0.8, epochs=4, power=1)


class Target:
    """Records every level that is set."""

    def __init__(self, level: float = 0.0) -> None:
        self.seen: list[float] = []
        self._level = level

    @property
    def level(self) -> float:
        return self._level

    @level.setter
    def level(self, level: float) -> None:
        self.seen.append(level)
        self._level = level


def adaptive(target: Target, reached: list[float], **changes: Any) -> AdaptiveScheduler:  # noqa: ANN401
    numbers = {"maximum": 0.5, "increment": 0.2, "patience": 2, "eps": 0.05, "freeze_epoch": 99}
    values = iter(reached)
    return AdaptiveScheduler(target, reached=lambda: next(values), **(numbers | changes))


def test_each_epoch_sets_its_level() -> None:
    target = Target()
    scheduler = EpochScheduler(target, LINE, freeze_epoch=99)
    for _ in range(3):
        scheduler.epoch_step()
    assert target.seen == pytest.approx([0, 0.2, 0.4])


@pytest.mark.parametrize("kind", [EpochScheduler, StepScheduler])
def test_before_the_first_epoch_the_level_is_the_targets(
    kind: type[EpochScheduler | StepScheduler],
) -> None:
    scheduler = kind(Target(0.3), LINE, freeze_epoch=99)
    assert scheduler.level == 0.3
    scheduler.epoch_step()
    assert scheduler.level == 0.0


def test_an_epoch_can_be_given() -> None:
    target = Target()
    EpochScheduler(target, LINE, freeze_epoch=99).epoch_step(3)
    assert target.seen == pytest.approx([0.6])


def test_from_the_freeze_epoch_on_masks_stand_still() -> None:
    target = Target()
    scheduler = EpochScheduler(target, LINE, freeze_epoch=2)
    for _ in range(5):
        scheduler.epoch_step()
    assert target.seen == pytest.approx([0, 0.2, 0.4])
    assert scheduler.level == pytest.approx(0.4)


def test_a_freeze_at_the_first_epoch_still_sets_its_level_once() -> None:
    target = Target()
    scheduler = EpochScheduler(target, BaselineSchedule(target=0.5), freeze_epoch=0)
    scheduler.epoch_step()
    scheduler.epoch_step()
    assert target.seen == [0.5]


def test_steps_move_within_the_epoch_when_their_number_is_known() -> None:
    target = Target()
    scheduler = StepScheduler(target, LINE, freeze_epoch=99, steps_per_epoch=2)
    for _ in range(2):
        scheduler.epoch_step()
        scheduler.step()
        scheduler.step()
    assert target.seen == pytest.approx([0, 0, 0.1, 0.2, 0.2, 0.3])


def test_the_first_epoch_counts_the_steps_when_their_number_is_unknown() -> None:
    target = Target()
    scheduler = StepScheduler(target, LINE, freeze_epoch=99)
    for _ in range(3):
        scheduler.epoch_step()
        scheduler.step()
        scheduler.step()
    assert scheduler.steps_per_epoch == 2
    assert target.seen == pytest.approx([0, 0, 0, 0, 0, 0.1, 0.2, 0.2, 0.3])


@pytest.mark.parametrize("counted", [False, True])
def test_steps_of_a_convex_polynomial_take_nncfs_published_levels(*, counted: bool) -> None:
    target = Target()
    square = PolynomialSchedule(initial=0.1, target=0.5, epochs=3, power=2, concave=False)
    scheduler = StepScheduler(
        target, square, freeze_epoch=4, steps_per_epoch=None if counted else 3
    )
    levels = []
    for _ in range(3):
        scheduler.epoch_step()
        for _ in range(3):
            scheduler.step()
            levels.append(target.level)
    first = [0.1, 85 / 810, 97 / 810]
    second = [13 / 90, 145 / 810, 181 / 810]
    expected = [0.1, 0.1, 0.1, *first, *second] if counted else [*first, *second]
    assert levels[: len(expected)] == pytest.approx(expected, abs=1e-7)


def test_the_masks_freeze_as_many_epochs_later_as_steps_are_counted() -> None:
    target = Target()
    seen: list[int] = []
    scheduler = StepScheduler(target, LINE, freeze_epoch=1)
    scheduler.on_epoch = seen.append
    for _ in range(3):
        scheduler.epoch_step()
        scheduler.step()
    assert seen == [0, 0, 1]


def test_the_adaptive_level_rises_after_patient_epochs_up_to_its_maximum() -> None:
    target = Target()
    scheduler = adaptive(target, [0, 0, 0.1, 0.2, 0.2, 0.4, 0.4])
    for _ in range(7):
        scheduler.epoch_step()
    # epochs at the level: 1, 2 (up), none (0.1 < 0.15), 1, 2 (up), 1, 2 (up, to the maximum)
    assert target.seen == pytest.approx([0, 0.2, 0.2, 0.2, 0.4, 0.4, 0.5])


def test_the_adaptive_level_takes_nncfs_published_values() -> None:
    target = Target(0.2)
    reached = [0.3, 0.2, 0.22, 0.31, 0.34, 0.37, 0.48]
    scheduler = adaptive(
        target, reached, maximum=0.4, increment=0.05, patience=1, eps=0.03, freeze_epoch=7
    )
    seen = []
    for _ in reached:
        scheduler.epoch_step()
        seen.append(target.level)
    assert seen == pytest.approx([0.25, 0.25, 0.3, 0.35, 0.4, 0.4, 0.4], abs=1e-7)


def test_the_adaptive_level_stands_from_the_freeze_epoch_on() -> None:
    target = Target()
    scheduler = adaptive(target, [0] * 9, patience=1, freeze_epoch=1)
    scheduler.epoch_step()
    with pytest.warns(TrainingLoopWarning, match="now on, at level 0.2 instead of 0.5"):
        scheduler.epoch_step()
    scheduler.epoch_step()  # told once
    assert target.seen == pytest.approx([0.2])


def test_a_composite_drives_all_parts_in_step() -> None:
    first, second = Target(), Target()
    scheduler = CompositeScheduler(
        {
            "a": EpochScheduler(first, LINE, freeze_epoch=99),
            "b": EpochScheduler(second, BaselineSchedule(target=0.5), freeze_epoch=0),
        }
    )
    scheduler.epoch_step(1)
    scheduler.step()
    assert (first.level, second.level) == (pytest.approx(0.2), 0.5)
    assert {part.current_step for part in scheduler.parts.values()} == {0}
    assert scheduler.level == 0.5


def test_what_comes_before_may_refuse_an_epoch_or_a_step() -> None:
    def refuse() -> None:
        raise ArgumentError("not now")

    target = Target()
    scheduler = StepScheduler(target, LINE, freeze_epoch=99, steps_per_epoch=2)
    scheduler.before = refuse
    for begin in (scheduler.epoch_step, scheduler.step):
        with pytest.raises(ArgumentError, match="not now"):
            begin()
    assert (scheduler.current_epoch, scheduler.current_step, target.seen) == (-1, -1, [])


def test_what_watches_the_loop_is_told_of_each_beginning_before_it_is_counted() -> None:
    class Watch:
        def __init__(self) -> None:
            self.told: list[int | str] = []

        def epoch_begins(self) -> None:
            self.told.append("epoch")

        def step_begins(self, epoch: int) -> None:
            self.told.append(epoch)

    scheduler = EpochScheduler(Target(), LINE, freeze_epoch=99)
    watch = Watch()
    scheduler.watch = watch  # type: ignore[assignment]  # what it is told is all that counts
    scheduler.epoch_step()
    scheduler.step()
    scheduler.epoch_step()
    assert watch.told == ["epoch", 0, "epoch"]


def test_a_held_scheduler_counts_and_leaves_the_level() -> None:
    target = Target(0.3)
    scheduler = StepScheduler(target, LINE, freeze_epoch=99, steps_per_epoch=1)
    scheduler.hold()
    scheduler.epoch_step()
    scheduler.step()
    assert (scheduler.current_epoch, scheduler.current_step, target.seen) == (0, 0, [])
    assert scheduler.state_dict()["is_held"] is True


def test_steps_from_the_freeze_epoch_on_set_no_level() -> None:
    target = Target()
    scheduler = StepScheduler(target, LINE, freeze_epoch=1, steps_per_epoch=1)
    for _ in range(4):
        scheduler.epoch_step()
        scheduler.step()
    assert target.seen == pytest.approx([0, 0, 0.2])


def schedulers() -> list[Scheduler]:
    return [
        EpochScheduler(Target(), LINE, freeze_epoch=99),
        StepScheduler(Target(), LINE, freeze_epoch=99),
        adaptive(Target(), [0.0] * 20, patience=3),
        CompositeScheduler({"a": StepScheduler(Target(), LINE, freeze_epoch=99)}),
    ]


@pytest.mark.parametrize("index", range(4))
def test_a_resumed_scheduler_goes_on_as_if_never_stopped(index: int) -> None:
    whole, resumed = schedulers()[index], schedulers()[index]
    for _ in range(2):
        whole.epoch_step()
        whole.step()
    resumed.load_state_dict(whole.state_dict())
    for one in (whole, resumed):
        one.epoch_step()
        one.step()
    assert resumed.level == whole.level
    assert resumed.state_dict() == whole.state_dict()


@pytest.mark.parametrize("killed", [0, 1, 2])
@pytest.mark.parametrize("index", range(4))
def test_an_epoch_that_begins_again_counts_once(index: int, killed: int) -> None:
    whole, restarted = schedulers()[index], schedulers()[index]
    for epoch in range(6):
        for one in (whole, restarted):
            one.epoch_step(epoch)
            one.step()
            if one is restarted and epoch == killed:
                one.epoch_step(epoch)
                one.step()
            one.step()
        assert restarted.level == whole.level


def test_a_negative_epoch_is_refused() -> None:
    with pytest.raises(ArgumentError, match="next_epoch is -1; epochs and steps are counted"):
        EpochScheduler(Target(), LINE, freeze_epoch=1).epoch_step(-1)


def test_the_state_of_another_schedule_is_refused() -> None:
    epoch, step = schedulers()[:2]
    with pytest.raises(StorageError, match=r"missing \['steps_begun', 'steps_per_epoch'\]"):
        step.load_state_dict(epoch.state_dict())
