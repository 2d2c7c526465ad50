"""The controller of algorithms that zero whole channels.

Everything that carries a removed channel is masked: the rows and biases that produce it, the
norms that follow it, and the columns that consume it. So the masked model computes the same as the
thinned model. The channels are removed by `nncfx.thin`.

Source: NNCF 2.19, "Filter pruning".
"""

import dataclasses
import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.algorithms.channel_pruning.activity import channel_activity
from nncfx.algorithms.channel_pruning.choice import ChannelChoice, weight_scores
from nncfx.algorithms.channel_pruning.group_lasso import GroupLasso
from nncfx.algorithms.channel_pruning.masked_norm_statistics import LivingNorms, without_loners
from nncfx.algorithms.channel_pruning.statistics import ChannelPruningStatistics, PrunedChannels
from nncfx.config import PruningConfig, PruningParams
from nncfx.controllers.base.controller import Controller
from nncfx.controllers.base.schedulers import EpochScheduler
from nncfx.controllers.base.schedules import (
    BaselineSchedule,
    BiasedExponentialSchedule,
    ExponentialSchedule,
    Schedule,
    WarmUp,
)
from nncfx.controllers.base.stage import CompressionStage
from nncfx.controllers.base.states import CONTROLLER, check_keys
from nncfx.controllers.base.weights import raw_parameters
from nncfx.controllers.masks.costs import Costs
from nncfx.controllers.masks.masking import MaskSet
from nncfx.errors import CompressionError, StorageError
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.narration import tracked
from nncfx.schemes import group_masks, kept_units, unconstrained_masks
from nncfx.schemes.masks.exact_masks import comparable

_LOGGER = logging.getLogger(__name__)


def pruning_schedule(initial: float, params: PruningParams) -> Schedule:
    """Return the level by epoch: 0 for `num_init_steps` epochs, then by the schedule of `params`.

    The target is reached in the last of the `pruning_steps` epochs.
    """
    epochs, goal = params.pruning_steps - 1, params.target
    after: Schedule
    if params.schedule == "baseline":
        after = BaselineSchedule(target=goal)
    elif params.schedule == "exponential":
        after = ExponentialSchedule(initial=initial, target=goal, epochs=epochs)
    else:
        after = BiasedExponentialSchedule(initial=initial, target=goal, epochs=epochs)
    return WarmUp(epochs=params.num_init_steps, then=after)


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PruningSubject:
    """The parts of a model that channel pruning works on, found before hooks are inserted.

    Attributes:
        channels: All sets; those that must not be pruned are fixed.
        without: Parameters that carry channels and are not masked. Leaving out norms is exact,
            because the columns that read them are masked.
        macs: The model's multiply-accumulates.
        parameters: The model's parameters.
        graph: The model as traced.
        choice: How channels are chosen at a level.
        costs: The cost of which a level is a fraction; None for the number of groups.
    """

    channels: Channels
    without: frozenset[str]
    macs: Costs
    parameters: Costs
    graph: NNCFGraph
    choice: ChannelChoice
    costs: Costs | None


@final
class ChannelPruningController(Controller):
    """Masks channel groups at the level its scheduler sets.

    The level is a fraction of the groups; with `pruning_flops_target`, of the model's
    multiply-accumulates; with `pruning_parameters_target`, of its parameters; with
    `pruning_latency_target`, of the latency that a table predicts. `level` is what the masks
    remove, and `target_level` what was requested.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
        channels: The channel sets; those that are not fixed are pruned.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PruningConfig,
        hooks: tuple[MaskSet, LivingNorms],
        subject: PruningSubject,
    ) -> None:
        params = config.params
        self.needs_loss = params.group_lasso > 0
        super().__init__(model, config.algorithm, [config])
        self.config = config
        self.masks, self._norms = hooks
        self.channels = subject.channels
        self._subject = subject
        self._activity: dict[str, Tensor] = {}
        self._costs = subject.costs
        self.level = params.target  # raises if out of reach
        self._warn_missed_target()
        self.level = config.pruning_init
        if config.pruning_init and not self.level:
            _LOGGER.warning(
                "%s removes nothing at its 'pruning_init' %g: the level is a fraction of the %s. "
                "Raise 'pruning_init'%s.",
                config.algorithm,
                config.pruning_init,
                self._counted,
                "" if self._subject.choice.is_of_sets else ", or allow other widths by 'align': 1",
            )
        frozen = params.num_init_steps
        if params.schedule != "baseline":
            frozen += params.pruning_steps
        if config.pruning_init > params.target:
            _LOGGER.warning(
                "%s starts at the level %g, above its target %g, and falls to that in the first "
                "epoch. Lower 'pruning_init', or raise 'params.%s'.",
                config.algorithm,
                config.pruning_init,
                params.target,
                params.target_key,
            )
        schedule = pruning_schedule(min(config.pruning_init, params.target), params)
        self.scheduler = EpochScheduler(self, schedule, frozen)
        if params.group_lasso:
            self.compression_loss = GroupLasso(
                model, subject.channels, params.group_lasso, is_over=self._is_reached
            )

    def _is_reached(self) -> bool:
        return self.compression_stage() is CompressionStage.FULLY_COMPRESSED

    @property
    def _counted(self) -> str:
        """What a level is a fraction of, and how it is rounded."""
        sets = self.channels.prunable
        if self._subject.choice.is_of_sets:
            return f"{len(sets)} branches that can be removed, rounded down to whole ones"
        size, name = max((one.size, one.name) for one in sets)
        return (
            "groups of each set, rounded down to whole ones, and the largest set, "
            f"'{name}', has {size}"
        )

    def _warn_missed_target(self) -> None:
        """Warn if the target removes nothing, or if alignment keeps the level below the target.

        Levels are compared in whole percents.
        """
        target, key = self.config.params.target, self.config.params.target_key
        is_capped, reached = self._subject.choice.is_capped, self.level
        if target and not reached:
            _LOGGER.warning(
                "%s removes nothing at its target %g: no set of channels may lose so few. Raise "
                "'params.%s'%s.",
                self.algorithm,
                target,
                key,
                ", or allow other widths by 'align': 1" if is_capped else "",
            )
        elif is_capped and round(reached, 2) < round(target, 2):
            _LOGGER.warning(
                "%s reaches the level %.3f with these weights, not its target %g: 'align' "
                "rounds the remaining widths up. Allow other widths by 'align': 1, or round "
                "down by 'align_down': true.",
                self.algorithm,
                reached,
                target,
            )

    @override
    def _apply(self, level: float) -> None:
        costs = self._costs
        found = self._masks_at(level) if costs is None else self._masks_that_save(level, costs)
        self.masks.set(found)
        if self._norms.hooks:
            alive = {one.name: self._alive(one) for one in self.channels.prunable}
            self._norms.set(self.channels, alive)

    @override
    def _level_now(self) -> float:
        masks = self.masks.present()
        if self._costs is not None:
            return self._costs.saved(masks)
        return self._group_level(self._pruned(self._weights(), masks))

    def _group_level(self, pruned: Sequence[PrunedChannels]) -> float:
        """Return the masked fraction of groups, or of sets if these are removed as a whole."""
        if self._subject.choice.is_of_sets:
            return sum(not one.after for one in pruned) / len(pruned)
        return _masked_share(pruned)

    def _masks_at(
        self, group_level: float, scores: Sequence[Tensor] | None = None
    ) -> dict[str, Tensor]:
        ranking = self._subject.choice.ranking
        if ranking is None:
            scores = self._scores() if scores is None else scores
            return self._masks(self._keep(group_level, scores))
        graph, weights = self._subject.graph, self._weights()
        masks = unconstrained_masks(self.channels, weights, group_level, ranking, graph=graph)
        return self._wanted(masks)

    def _scores(self) -> list[Tensor]:
        """Return the scores of the groups of each prunable set."""
        choice, params = self._subject.choice, self.config.params
        if self._activity:
            return [
                comparable(one, self._activity[one.name], normalize=choice.is_normalized)
                for one in self.channels.prunable
            ]
        weights, normalize = self._weights(), choice.is_normalized
        return weight_scores(self.channels, weights, params, normalize=normalize)

    def _keep(self, group_level: float, scores: Sequence[Tensor]) -> list[Tensor]:
        keep = self._subject.choice.keep(self.channels, scores, group_level)
        return without_loners(self.channels, keep, self._subject.graph)

    @override
    def calibrate(self, batches: Iterable[Any]) -> None:
        """Score the groups by activations on `batches`, and apply the level again.

        Masks are lifted meanwhile, because a masked channel shows no activity.

        Raises:
            ArgumentError: a batch has an unknown form.
            CompressionError: some channels cannot be observed at any layer, or there is no batch.
        """
        params = self.config.params
        if not params.needs_data:
            return
        importance, samples = params.filter_importance, params.importance_samples
        with self.masks.lifted(), self._norms.lifted():
            found = channel_activity(self.model, self.channels, batches, importance, samples)
        self._activity = found
        self.level = self.target_level

    @override
    def state_dict(self) -> dict[str, Any]:
        activity = {name: scores.tolist() for name, scores in self._activity.items()}
        return super().state_dict() | ({"activity": activity} if activity else {})

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not self.config.params.needs_data:
            super().load_state_dict(state)
            return
        check_keys(state, CONTROLLER, f"The state of '{self.algorithm}'", optional=("activity",))
        super().load_state_dict({key: state[key] for key in CONTROLLER})
        names = [one.name for one in self.channels.prunable]
        activity = state.get("activity", {})
        check_keys(activity, names, f"The activity in the state of '{self.algorithm}'")
        try:
            self._activity = {
                name: torch.tensor(activity[name], dtype=torch.float32, device="cpu")
                for name in names
            }
        except (TypeError, ValueError) as error:
            raise StorageError(
                f"The activity in the state of '{self.algorithm}' is damaged ({error}). Write it "
                "again."
            ) from error

    def _masks(self, keep: Sequence[Tensor]) -> dict[str, Tensor]:
        return self._wanted(group_masks(self.channels, keep, self._weights()))

    def _wanted(self, masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: mask for name, mask in masks.items() if name not in self._subject.without}

    def _masks_that_save(self, level: float, costs: Costs) -> dict[str, Tensor]:
        """Return masks that save the fraction `level` of `costs`, as nearly as groups allow.

        They save at least that, with the least excess; with aligned widths, at most that.
        Bisection finds the level of groups at which the target is met. Several sets can lose
        groups at that level; as many of them as needed keep theirs.

        Raises:
            CompressionError: no level meets the target.
        """
        ranking = self._subject.choice.ranking
        scores = self._scores() if ranking is None else []
        masks_at = functools.partial(self._masks_at, scores=scores)
        if not level:
            return masks_at(0.0)
        low, high = 0.0, 1.0 - 2**-20
        reached = costs.saved(masks_at(high))
        if reached < level:
            raise CompressionError(
                f"{self.algorithm} can save at most {reached:.3f} of the {costs.unit} of this "
                f"model, not {level:g}: the rest is in layers that it may not touch, or is kept "
                f"because 'align' rounds widths up. Lower '{self.config.params.target_key}', or "
                "allow more (scopes; 'align': 1; prune_first_conv and prune_downsample_convs of "
                "filter_pruning)."
            )
        # 2^-20 distinguishes any two counts among a million groups
        for _ in tracked(range(20), f"Finding channels that save {level:g}"):
            middle = (low + high) / 2
            if costs.saved(masks_at(middle)) < level:
                low = middle
            else:
                high = middle
        is_capped = self._subject.choice.is_capped and costs.saved(masks_at(high)) > level
        begin, end = (low, high) if is_capped else (high, low)
        if ranking is not None:
            return masks_at(begin)
        keep = self._keep(begin, scores)
        others = list(enumerate(self._keep(end, scores)))
        for index, other in tracked(others, "Choosing among sets of channels"):
            tried = [*keep[:index], other, *keep[index + 1 :]]
            saved = costs.saved(self._masks(tried))
            if saved <= level if is_capped else saved >= level:
                keep = tried
        return self._masks(keep)

    @override
    def statistics(self) -> ChannelPruningStatistics:
        masks = self.masks.present()
        pruned = self._pruned(self._weights(), masks)
        return ChannelPruningStatistics(
            target_level=self.target_level,
            level=_masked_share(pruned),
            macs_level=self._subject.macs.saved(masks),
            parameter_level=self._subject.parameters.saved(masks),
            channels=pruned,
            spared=dict(self.channels.fixed),
            why_whole=self._subject.choice.why_whole,
            unread=tuple(one for one in self.unread if one not in self.masks.hooks),
        )

    def _pruned(
        self, weights: Mapping[str, Tensor], masks: Mapping[str, Tensor]
    ) -> tuple[PrunedChannels, ...]:
        ranking = self._subject.choice.ranking
        if ranking is None:
            counts = {
                one.name: (one.size, int(self._alive(one).sum())) for one in self.channels.prunable
            }
        else:
            counts = kept_units(self.channels, weights, masks, ranking.side)
        return tuple(
            PrunedChannels(name=name, before=before, after=after)
            for name, (before, after) in counts.items()
        )

    def _alive(self, group_set: GroupSet) -> Tensor:
        """Return which groups the mask of a producer keeps."""
        names = self.masks.hooks
        member = next(m for m in group_set.by_role(Role.PRODUCER) if m.parameter in names)
        mask = names[member.parameter][0].keep().movedim(member.axis, 0).flatten(1)
        entries = torch.tensor(member.indices[:, 0].tolist(), device=mask.device)
        return mask.any(dim=1)[entries]

    def _weights(self) -> dict[str, Tensor]:
        return {name: one.detach() for name, one in raw_parameters(self.model).items()}


def _masked_share(pruned: Sequence[PrunedChannels]) -> float:
    return 1 - sum(one.after for one in pruned) / sum(one.before for one in pruned)
