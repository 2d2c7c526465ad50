"""Watch the user's training loop and warn, once each, about missing calls."""

import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.network import NNCFNetwork


class TrainingLoopWarning(UserWarning):
    """The training loop omits or repeats a call that compression depends on."""


_NO_EPOCH = (
    "The model is being trained, but scheduler.epoch_step() was never called, so the level "
    "stays where it began. Call controller.scheduler.epoch_step() at the beginning of each "
    "epoch."
)
_NO_FURTHER_EPOCH = (
    "This epoch has taken more than {count} steps, twice as many as any before, so the level "
    "does not change: scheduler.epoch_step() seems to be left out. Call "
    "controller.scheduler.epoch_step() at the beginning of each epoch, not only of the first."
)
_NO_GROUPS = (
    "The config multiplies the learning rate of '{multiplied}' (compression_lr_multiplier), but "
    "the optimizer was not made from controller.parameter_groups(), so the multiplier has no "
    "effect. Write optimizer = SGD(controller.parameter_groups(lr=0.1))."
)
_ONLY_ONCE = (
    "scheduler.epoch_step() was called once in {count} steps of training, and the schedule is not "
    "at its end: the level is {level:.3g}, and would be {final:.3g}. Call controller.scheduler."
    "epoch_step() at the beginning of each epoch; if there was to be one epoch only, let the "
    "schedule end in it."
)
_TWICE = (
    "scheduler.epoch_step() was called twice with no training in between, so the schedule runs "
    "ahead of the training. Call it once, at the beginning of each epoch."
)
_NO_LOSS = (
    "The model was trained for an epoch without controller.loss(), by which '{algorithm}' works. "
    "Add it to the loss of the task: loss = criterion(model(x), y) + controller.loss()."
)
_NOT_ADDED = (
    "controller.loss() was called, but not differentiated before the optimizer went on, so "
    "'{algorithm}' has no effect. Add its value to the loss that you call backward() on."
)

_NOT_HELD = (
    "The model was trained for an epoch, and no parameter of '{unheld}' was changed, though these "
    "have gradients: the optimizer does not hold them. Create it after create_compressed_model: "
    "optimizer = SGD(model.parameters(), lr=0.1)."
)

_NEVER: Final = (
    "The model was trained, and the scheduler was never called: the level is {level:.3g}, and "
    "would be {final:.3g} at the end of the schedule. Call controller.scheduler.epoch_step() at "
    "the beginning of each epoch."
)

_LOADED: Final = 2
"""A parameter written to at most this often was initialized or loaded, not trained."""

_LONGER: Final = 2
"""An epoch with this many times the steps of the longest earlier epoch counts as several."""


@final
class LoopWatch:
    """Detects optimizer steps by the version counters of the parameters.

    Calls without training, as in a test of a schedule, never cause a warning.

    Args:
        model: The model that is trained.
        algorithm: The algorithm whose loss must be added; "" if the loss is zero anyway.
        multiplied: Algorithms whose parameters have their own learning rate.
    """

    def __init__(
        self, model: nn.Module, algorithm: str = "", multiplied: Iterable[str] = ()
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self._multiplied = frozenset(multiplied)
        self._given: set[str] = set()
        self._seen = self._versions()
        self._learned: dict[int, int] = {}
        self._epochs = 0
        self._calls = 0
        self._steps = 0
        self._losses = 0
        self._longest = 0
        self._is_trained = False
        self._was_trained = False
        self._is_pending = False

    @override
    def __getstate__(self) -> dict[str, Any]:
        # a copy's parameters restart their counters, and losses of the original do not reach it
        return self.__dict__ | {"_seen": {}, "_learned": {}, "_is_pending": False}

    def groups_are_made(self) -> None:
        """Record a call of `parameter_groups()`."""
        self._multiplied = frozenset()

    def epoch_begins(self) -> None:
        """Record a call of `epoch_step()`."""
        has_stepped = self._look()
        if self._is_left_out(has_stepped=has_stepped):
            self._warn(_NOT_ADDED)
        if self._epochs and self._was_trained and not (self._calls or self._is_trained):
            self._warn(_TWICE)
        if self._epochs and self._is_trained and self.algorithm and not self._losses:
            self._warn(_NO_LOSS)
        if unheld := self._unheld():
            self._warn(_NOT_HELD, unheld=unheld)
        self._was_trained |= self._is_trained and self._calls > 0
        if self._epochs and self._is_trained:
            self._longest = max(self._longest, self._steps, self._losses)
        self._epochs += 1
        self._calls = self._losses = self._steps = 0
        self._is_trained = self._is_pending = False

    def step_begins(self, current_epoch: int) -> None:
        """Record a call of `step()` in `current_epoch`."""
        has_stepped = self._look()
        self._steps += 1
        for message in self._missing(current_epoch, has_stepped=has_stepped):
            self._warn(message)
        self._calls += 1

    def loss_is_asked(self, loss: Tensor, current_epoch: int) -> None:
        """Record a call of `loss()`, which returns `loss`."""
        if torch.compiler.is_compiling():
            return
        has_stepped = self._look()
        self._losses += 1
        for message in self._missing(current_epoch, has_stepped=has_stepped):
            self._warn(message)
        self._calls += 1
        self._is_pending = loss.requires_grad
        if loss.requires_grad:
            loss.register_hook(self._is_differentiated)  # type: ignore[no-untyped-call]  # torch

    def is_stripped(self, current_epoch: int, levels: tuple[float, float]) -> None:
        """Record that the model is stripped at the first of `levels` instead of the second."""
        if self._is_never_called():
            level, final = levels
            self._warn(_NEVER, level=level, final=final)
        self._look()
        if unheld := self._unheld():
            self._warn(_NOT_HELD, unheld=unheld)
        steps = max(self._steps, self._losses)
        # later epochs that are too long are reported while they run
        if current_epoch == 0 and self._is_trained and steps > 1:
            level, final = levels
            self._warn(_ONLY_ONCE, count=steps, level=level, final=final)

    def _is_never_called(self) -> bool:
        """Return whether the model was trained without any call of the scheduler."""
        if self._calls or self._epochs:
            return False
        written = (one - self._seen.get(key, one) for key, one in self._versions().items())
        return max(written, default=0) > _LOADED

    def _is_differentiated(self, _: Tensor) -> None:
        self._is_pending = False

    def _is_left_out(self, *, has_stepped: bool) -> bool:
        """Return whether the optimizer stepped without the requested loss."""
        return self._is_pending and has_stepped and bool(self.algorithm)

    def _missing(self, current_epoch: int, *, has_stepped: bool) -> Iterator[str]:
        """Yield the messages of calls found missing by a step or a loss in `current_epoch`."""
        if self._is_left_out(has_stepped=has_stepped):
            yield _NOT_ADDED
        if not self._is_trained:
            return
        if current_epoch < 0 and self._calls > 0:
            yield _NO_EPOCH
        if self._longest and max(self._steps, self._losses) > _LONGER * self._longest:
            yield _NO_FURTHER_EPOCH
        if self._multiplied:
            self._multiplied = self._multiplied & learned_parameters(self.model).keys()
            if self._multiplied:
                yield _NO_GROUPS
            self._multiplied = frozenset()

    def _look(self) -> bool:
        """Record and return whether parameters have changed since the last look."""
        before, self._seen = self._seen, self._versions()
        # parameters frozen in between are in only one of the looks
        has_stepped = any(before.get(key, one) != one for key, one in self._seen.items())
        # changes before the first call come from loading, not training
        self._is_trained |= has_stepped and (self._calls > 0 or self._epochs > 0)
        return has_stepped

    def _unheld(self) -> str:
        """Return the algorithms whose parameters no optimizer has changed since the last look."""
        hooked = learned_parameters(self.model)
        # parameters outside of any optimizer keep their gradients, since nothing resets them
        unheld = [
            algorithm
            for algorithm, several in hooked.items()
            if (found := [one for one in several if one.requires_grad and one.grad is not None])
            and all(self._learned.get(id(one)) == one._version for one in found)  # noqa: SLF001 (no public counter)
        ]
        every = itertools.chain.from_iterable(hooked.values())
        self._learned = {id(one): one._version for one in every}  # noqa: SLF001 (as above)
        return ", ".join(unheld) if self._is_trained else ""

    def _versions(self) -> dict[int, int]:
        # a few are enough, since an optimizer changes all its parameters
        parameters = self.model.parameters()
        trained = (one for one in parameters if one.requires_grad and not one.is_inference())
        return {id(one): one._version for one in itertools.islice(trained, 8)}  # noqa: SLF001 (no public counter)

    def _warn(self, message: str, **values: float | str) -> None:
        if message not in self._given:
            self._given.add(message)
            known = {
                "algorithm": self.algorithm,
                "multiplied": ", ".join(sorted(self._multiplied)),
                "count": _LONGER * self._longest,
            }
            text = message.format(**(known | values))
            # the line of the user's loop, above this method, the watch and its caller
            warnings.warn(text, TrainingLoopWarning, stacklevel=4)


def learned_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the parameters of hooks, each once, by algorithms that have any."""
    found: dict[str, dict[nn.Parameter, None]] = {}
    for one in model.nncf.hooks if isinstance(model, NNCFNetwork) else ():
        if parameters := dict.fromkeys(one.hook.parameters()):
            found.setdefault(one.algorithm, {}).update(parameters)
    return {algorithm: list(parameters) for algorithm, parameters in found.items()}
