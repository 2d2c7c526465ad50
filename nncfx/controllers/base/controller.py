"""Controllers, the handles of applied algorithms."""

import abc
import contextlib
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nncfx.config import AlgorithmConfig
from nncfx.controllers.base.composite_scheduler import CompositeScheduler
from nncfx.controllers.base.loop_watch import LoopWatch, learned_parameters
from nncfx.controllers.base.losses import CompressionLoss, ZeroLoss
from nncfx.controllers.base.nncf_names import instead_of
from nncfx.controllers.base.schedulers import EpochScheduler, Scheduler
from nncfx.controllers.base.schedules import BaselineSchedule
from nncfx.controllers.base.shared_gradients import average_gradients
from nncfx.controllers.base.stage import CompressionStage
from nncfx.controllers.base.states import CONTROLLER, check_keys
from nncfx.controllers.base.statistics import Statistics
from nncfx.controllers.base.unread_weights import unread_weights
from nncfx.errors import ArgumentError, CompressionError
from nncfx.network import NNCFNetwork, bake, is_strippable, strip
from nncfx.schemes.masks.exact_masks import check_level
from nncfx.storage.models.sharded_models import gathered
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.hooks.carried_state import CarriedState
from nncfx.tracing.hooks.store import own_parameters
from nncfx.tracing.hooks.validation import check_places


class Controller(abc.ABC):
    """The handle of an algorithm that was applied to a model.

    Attributes:
        model: The wrapped model; can be plain if compression is finished.
        algorithm: The name of the algorithm in configs.
        configs: The configs of the algorithms of this controller, with scopes merged in.
        scheduler: Sets the level during training; each algorithm with a level has its own.
        compression_loss: The loss that the algorithm adds to the loss of the task.
        has_level, needs_loss: Whether a level can be set; whether training must add the loss.
    """

    has_level: bool = True
    needs_loss: bool = False
    _scheduler: Scheduler

    def __init__(
        self, model: nn.Module, algorithm: str, configs: Sequence[AlgorithmConfig]
    ) -> None:
        self.model = model
        self.algorithm = algorithm
        self.configs = tuple(configs)
        self.compression_loss: CompressionLoss = ZeroLoss(model)
        self._level = 0.0
        self._composite: CompositeScheduler | None = None
        multiplied = [one.algorithm for one in self.configs if one.lr_multiplier != 1]
        self._watch = LoopWatch(model, algorithm if self.needs_loss else "", multiplied)
        self._carry()
        if not self.has_level:
            self.scheduler = EpochScheduler(self, BaselineSchedule(target=0.0), 0)

    def _carry(self) -> None:
        """Save the state of the schedule with the masks, in the model's `state_dict`."""
        self._carried = (
            self.model.nncf.carry(self.algorithm, self)
            if isinstance(self.model, NNCFNetwork)
            else CarriedState(self)
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the attributes, and register with the copy of the model."""
        self.__dict__.update(state)
        self._carry()

    if not TYPE_CHECKING:  # for type checkers it would make every attribute valid

        def __getattr__(self, name: str) -> object:
            """Raise AttributeError, which names the equivalent of an attribute of NNCF."""
            found = inspect.getattr_static(type(self), name, None)
            if isinstance(found, property):  # its own AttributeError led here
                return found.__get__(self)
            text = f"'{type(self).__name__}' object has no attribute '{name}'.{instead_of(name)}"
            raise AttributeError(text, name=name, obj=self)

    @property
    def parts(self) -> Mapping[str, "Controller"]:
        """The controllers by algorithm, which are this one itself or its parts."""
        return {self.algorithm: self}

    def __getitem__(self, algorithm: str) -> "Controller":
        """Return the controller of `algorithm`.

        Raises:
            ArgumentError: it was not applied.
        """
        parts = self.parts
        if algorithm not in parts:
            raise ArgumentError(
                f"The model carries no '{algorithm}'; it carries {sorted(parts)}. Name one "
                "of these."
            )
        return parts[algorithm]

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler that sets the level during training; assign another to replace it."""
        return self._scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Scheduler) -> None:
        scheduler.watch = self._watch
        scheduler.on_epoch = self._epoch_gathered
        scheduler.before = self._check_resumed
        self._scheduler = scheduler
        if self._composite is not None:
            self._composite.put(self.algorithm, scheduler)

    @property
    def level(self) -> float:
        """The strength of compression in [0, 1), as reached, not as requested.

        Setting it changes `target_level` and computes the masks again, even if the number stays
        the same.

        Raises:
            ArgumentError: when set to a number that is not in [0, 1), or for an algorithm that
                has no level.
            GraphError: when set, if modules have other names than when they were compressed.
        """
        return self._level_now()

    @level.setter
    def level(self, level: float) -> None:
        level = check_level(level)
        if not self.has_level:
            raise ArgumentError(
                f"'{self.algorithm}' has no level that could be set to {level}. Set the level of "
                "another algorithm, or leave it."
            )
        if isinstance(self.model, NNCFNetwork):
            check_places(self.model.nncf.hooks, self.model)
        with gathered(self.model):
            self._apply(level)
        self._level = level
        self._carried.is_behind = False

    @property
    def target_level(self) -> float:
        """The level requested last, which may not be reached exactly, due to whole units."""
        return self._target_now()

    def _level_now(self) -> float:
        return self._level

    def _target_now(self) -> float:
        return self._level

    def _epoch_gathered(self, epoch: int) -> None:
        with gathered(self.model):
            self._epoch_begun(epoch)

    def _epoch_begun(self, epoch: int) -> None:  # noqa: B027 (most algorithms do nothing)
        """Do what `epoch` needs besides setting a level."""

    def _check_resumed(self) -> None:
        """Refuse to begin a schedule with tensors from a later part of it.

        Raises:
            CompressionError: the tensors were loaded without the state of the schedule.
        """
        if not self._carried.is_behind or self.scheduler.current_epoch >= 0:
            return
        if self.compression_stage() is not CompressionStage.FULLY_COMPRESSED:
            raise CompressionError(
                f"The model has taken tensors of '{self.algorithm}' from a state_dict that does "
                "not say how far its schedule had come, and training would begin it again at "
                f"level {self.level:.3g}. Load controller.state_dict() of the same time with "
                "controller.load_state_dict, or set controller.level to begin there."
            )

    def loss(self) -> Tensor:
        """Return the scalar to add to the loss of the task, once per step."""
        loss = self._loss()
        self._watch.loss_is_asked(loss, self.scheduler.current_epoch)
        return loss

    def _loss(self) -> Tensor:
        return self.compression_loss()

    def compression_stage(self) -> CompressionStage:
        """Return the stage of compression; compare only checkpoints of the same stage."""
        return CompressionStage.of(self.target_level, self.scheduler.final_level)

    def initialize(self) -> None:  # noqa: B027 (as below)
        """Initialize a fresh model without data; not needed if a state is loaded."""

    def calibrate(self, batches: Iterable[Any]) -> None:  # noqa: B027 (most algorithms need none)
        """Initialize the algorithm from `batches`."""

    def strip(self) -> nn.Module:
        """Return a copy of the model with the compression baked in.

        The copy is a plain module of the original class without nncfx, unless hooks change
        activations, as quantizers do, for which a plain module has no place. Then the copy is
        still wrapped: masks etc. are baked into its weights, and the quantizers of weights and
        activations stay as constants. The copy has the mode of the model, and can be run and
        exported in both cases.

        Raises:
            GraphError: modules have other names than when they were compressed.
        """
        if not isinstance(self.model, NNCFNetwork):  # a finished model from nncfx.load
            return copy_of(self.model)
        check_places(self.model.nncf.hooks, self.model)
        if self.compression_stage() != CompressionStage.FULLY_COMPRESSED:
            levels = (self.level, self.scheduler.final_level)
            self._watch.is_stripped(self.scheduler.current_epoch, levels)
        with gathered(self.model):
            self._before_strip()
        if is_strippable(self.model):
            return strip(self.model)
        baked = bake(self.model)
        self._settle(baked)
        return baked

    def _before_strip(self) -> None:  # noqa: B027 (most algorithms do nothing)
        """Update the hooks for the present weights."""

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Let the model compute what `strip()` returns, within the context."""
        yield

    def prepare_for_export(self) -> nn.Module:
        """Return the copy of `strip` in evaluation mode."""
        return self.strip().eval()

    def _settle(self, model: NNCFNetwork) -> None:  # noqa: B027 (most algorithms do nothing)
        """Turn what the algorithm learns into constants in `model`, a copy."""

    def distributed(self) -> None:
        """Copy the tensors of hooks and the schedule from rank 0 to all processes.

        Call it once, after `torch.distributed` is initialized; masks and scores then change by the
        same schedules and gradients in all processes. If FSDP2 or tensor parallelism shards the
        model, parameters of hooks are not sharded, and their gradients are averaged from then on.

        Raises:
            ArgumentError: `torch.distributed` is not initialized.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise ArgumentError(
                "There are no processes to share with: torch.distributed is not initialized. Call "
                "torch.distributed.init_process_group first, or leave this call out."
            )
        hooks = self.model.nncf.hooks if isinstance(self.model, NNCFNetwork) else ()
        seen: set[int] = set()
        for tensor in (one for hook in hooks for one in hook.hook.state_dict().values()):
            if tensor.data_ptr() not in seen:
                seen.add(tensor.data_ptr())
                torch.distributed.broadcast(tensor, src=0)
        state = [self.state_dict()]
        torch.distributed.broadcast_object_list(state, src=0)
        self.load_state_dict(state[0])
        average_gradients(self.model)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Return optimizer groups of the model's parameters and of those of the algorithms.

        The latter have a learning rate of `lr` times the `compression_lr_multiplier` of their
        algorithm, and no weight decay, which would pull them towards compression.

        >>> import torch, nncfx
        >>> model = torch.nn.Linear(4, 4)
        >>> item = {"algorithm": "rb_sparsity", "compression_lr_multiplier": 5}
        >>> made = nncfx.create_compressed_model(model, {"compression": item}, torch.ones(1, 4))
        >>> [group["lr"] for group in made[0].parameter_groups(lr=0.1)]
        [0.1, 0.5]
        """
        self._watch.groups_are_made()
        groups = [{"params": own_parameters(self.model), "lr": lr}]
        multipliers = {one.algorithm: one.lr_multiplier for one in self.configs}
        groups.extend(
            {"params": parameters, "lr": lr * multipliers.get(algorithm, 1.0), "weight_decay": 0.0}
            for algorithm, parameters in learned_parameters(self.model).items()
        )
        return groups

    @property
    def unread(self) -> tuple[str, ...]:
        """The weights that the traced forward does not read, which have no hooks."""
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        return unread_weights(self.model)

    @abc.abstractmethod
    def statistics(self) -> Statistics:
        """Return statistics of the compression so far."""

    def _apply(self, level: float) -> None:
        """Bring the model to `level`, a number in [0, 1), if the algorithm has a level.

        Raises:
            CompressionError: the algorithm has a level, but does not override this method.
        """
        raise CompressionError(
            f"{type(self).__name__} does not say how it reaches a level of {level}. Define its "
            "_apply(level), or set has_level = False."
        )

    def state_dict(self) -> dict[str, Any]:
        """Return level and scheduler as plain values; masks are in the model's `state_dict`.

        The model's `state_dict` contains these values too, so loading it is enough to continue.
        """
        return {
            "algorithm": self.algorithm,
            "level": self.target_level,
            "scheduler": self.scheduler.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore level and scheduler from `state` without changing the masks.

        Load the model's `state_dict` as well, which holds the masks of this level.

        Raises:
            StorageError: `state` is not a state of this algorithm and schedule.
        """
        source = f"The state of '{self.algorithm}'"
        check_keys(state, CONTROLLER, source)
        if state["algorithm"] != self.algorithm:
            found = {str(state["algorithm"]): None}
            check_keys(found, (self.algorithm,), "The controller's state")
        self.scheduler.load_state_dict(state["scheduler"])
        self._level = check_level(state["level"])
        self._carried.is_behind = False
        if self._composite is not None:
            self._composite.go_on_from(self.scheduler)
