"""Filter pruning: whole channels are zero, on both sides, so that they can be removed exactly.

Masks stand on everything that carries a removed channel: the rows and biases that produce it, the
norms that follow it, the columns that consume it. The masked model therefore computes what the
thinned one does. Removing is `nncfx.thin`'s work.

Source: NNCF 2.19, "Filter pruning".
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import FilterPruningConfig, FilterPruningParams
from nncfx.controllers import (
    BaselineSchedule,
    BiasedExponentialSchedule,
    Builder,
    Controller,
    EpochScheduler,
    ExponentialSchedule,
    MaskHook,
    MaskSet,
    Schedule,
    WarmUp,
    register_algorithm,
)
from nncfx.controllers.channel_scopes import Spared, read_within, spare
from nncfx.controllers.pruned_channels import FilterPruningStatistics, PrunedChannels
from nncfx.controllers.weight_macs import WeightMacs
from nncfx.controllers.weights import (
    aliases,
    norm_parameters,
    own_parameters,
    raw_parameters,
)
from nncfx.errors import CompressionError
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels, GroupSet, Role
from nncfx.schemes import (
    Criterion,
    MaskScope,
    Ranking,
    group_masks,
    group_scores,
    keep_groups,
    kept_units,
    unconstrained_masks,
)
from nncfx.schemes.alignment import ALIGNMENTS, Alignment
from nncfx.schemes.criteria import geometric_median
from nncfx.tracing import Insertion, NNCFNetwork, Priority, WeightSite

__all__ = [
    "FilterPruningBuilder",
    "FilterPruningController",
    "FilterPruningStatistics",
    "PrunedChannels",
    "filter_masks",
    "geometric_median",
    "keep_filters",
    "pruning_schedule",
]

ALGORITHM = FilterPruningConfig.algorithm


_CRITERIA: Final[Mapping[str, Criterion]] = {
    "L1": "l1norm",
    "L2": "l2norm",
    "geometric_median": geometric_median,
}


def pruning_schedule(initial: float, params: FilterPruningParams) -> Schedule:
    """Return the level by epoch: 0 for `num_init_steps` epochs, then as `params` say.

    The target is reached at the last of the `pruning_steps` epochs.
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


def keep_filters(
    channels: Channels,
    weights: Mapping[str, Tensor],
    level: float,
    params: FilterPruningParams,
) -> list[Tensor]:
    """Return, for each prunable set of `channels`, which of its groups stay at `level`.

    One ranking over all sets, each set's scores divided by their mean (`all_weights`), or the
    same fraction of every set; `floor(level * n)` of n groups go, and more where `align` asks for
    it. No set is emptied.

    Raises:
        ArgumentError: `level` is not in [0, 1).
        CompressionError: weights have NaN entries.
    """
    criterion = _CRITERIA[params.filter_importance]
    scores = group_scores(channels, weights, criterion, normalize=params.all_weights)
    scope: MaskScope = "global" if params.all_weights else "local"
    entries = [one.origin.indices.shape[1] for one in channels.prunable]
    return keep_groups(scores, level, align=_alignment(params), scope=scope, entries=entries)


def _alignment(params: FilterPruningParams) -> int | Alignment:
    return ALIGNMENTS["onnxruntime"] if params.align is None else params.align


def filter_masks(
    channels: Channels,
    keep: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    *,
    without: frozenset[str] = frozenset(),
) -> dict[str, Tensor]:
    """Return the masks of all parameters that carry a group which goes, except `without`.

    Leaving norms out is exact as well: the columns that would read them are masked.
    """
    masks = group_masks(channels, keep, weights)
    return {name: mask for name, mask in masks.items() if name not in without}


@final
@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Subject:
    """What filter pruning works on in a model, found before hooks stand in it.

    Attributes:
        channels: All sets; those that shall not be touched are fixed.
        norms: Parameters that only norms read.
        macs: The model's multiply-accumulates by weight.
        graph: The model as traced.
    """

    channels: Channels
    norms: frozenset[str]
    macs: WeightMacs
    graph: NNCFGraph


@final
class FilterPruningController(Controller):
    """Masks channel groups at the level its scheduler asks for.

    The level is a fraction of the groups, or of the model's multiply-accumulates where the config
    has a `pruning_flops_target`.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
        channels: The channel sets; those that are not fixed are pruned.
    """

    def __init__(
        self,
        model: nn.Module,
        config: FilterPruningConfig,
        masks: MaskSet,
        subject: _Subject,
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = masks
        self.channels = subject.channels
        self._macs = subject.macs
        self._graph = subject.graph
        self._without = frozenset() if config.params.prune_batch_norms else subject.norms
        if self._is_by_macs:
            self._masks_for_macs(config.params.target)  # a target out of reach is said now
        self.level = config.pruning_init
        params = config.params
        frozen = params.num_init_steps
        if params.schedule != "baseline":
            frozen += params.pruning_steps
        schedule = pruning_schedule(config.pruning_init, params)
        self.scheduler = EpochScheduler(self, schedule, frozen)

    @property
    def _is_by_macs(self) -> bool:
        return self.config.params.pruning_flops_target is not None

    @override
    def _apply(self, level: float) -> None:
        masks = self._masks_for_macs(level) if self._is_by_macs else self._masks_at(level)
        self.masks.set(masks)

    def _masks_at(self, filter_level: float) -> dict[str, Tensor]:
        params = self.config.params
        if params.constrained:
            return self._masks(self._keep(filter_level))
        ranking = Ranking(
            side=params.pruning_side,
            criterion=_CRITERIA[params.filter_importance],
            scope="global" if params.all_weights else "local",
            normalize=params.all_weights,
            align=_alignment(params),
        )
        masks = unconstrained_masks(
            self.channels, self._weights(), filter_level, ranking, graph=self._graph
        )
        return {name: mask for name, mask in masks.items() if name not in self._without}

    def _keep(self, filter_level: float) -> list[Tensor]:
        return keep_filters(self.channels, self._weights(), filter_level, self.config.params)

    def _masks(self, keep: Sequence[Tensor]) -> dict[str, Tensor]:
        return filter_masks(self.channels, keep, self._weights(), without=self._without)

    def _saved(self, keep: Sequence[Tensor]) -> float:
        return self._macs.saved(self._masks(keep))

    def _masks_for_macs(self, macs_level: float) -> dict[str, Tensor]:
        """Return masks so that at least `macs_level` of the MACs go, and hardly more.

        Bisection finds the level of filters at which the target is met; at that level several
        sets lose a group at once, and those that need not are given theirs back.

        Raises:
            CompressionError: no level meets the target.
        """
        low, high = 0.0, 1.0 - 2**-20
        reached = self._macs.saved(self._masks_at(high))
        if reached < macs_level:
            raise CompressionError(
                f"filter_pruning can save at most {reached:.3f} of the multiply-accumulates of "
                f"this model, not {macs_level:g}: the rest is in layers that it may not touch. "
                "Lower 'pruning_flops_target', or allow more (prune_first_conv, "
                "prune_downsample_convs, scopes).",
            )
        # 2^-20 tells apart any two counts among a million filters
        for _ in range(20):
            middle = (low + high) / 2
            if self._macs.saved(self._masks_at(middle)) < macs_level:
                low = middle
            else:
                high = middle
        if not self.config.params.constrained:
            return self._masks_at(high)
        keep = self._keep(high)
        for index, returned in enumerate(self._keep(low)):
            tried = [*keep[:index], returned, *keep[index + 1 :]]
            if self._saved(tried) >= macs_level:
                keep = tried
        return self._masks(keep)

    @override
    def statistics(self) -> FilterPruningStatistics:
        weights = self._weights()
        masks = {name: hooks[0].mask.expand_as(weights[name]) for name, hooks in self._hooks()}
        pruned = self._pruned(weights, masks)
        before = sum(one.before for one in pruned)
        gone = sum(int((mask == 0).sum()) for mask in masks.values())
        total = sum(parameter.numel() for parameter in own_parameters(self.model))
        return FilterPruningStatistics(
            target_level=self.level,
            level=1 - sum(one.after for one in pruned) / before,
            macs_level=self._macs.saved(masks),
            parameter_level=gone / total,
            channels=pruned,
            spared=dict(self.channels.fixed),
        )

    def _pruned(
        self,
        weights: Mapping[str, Tensor],
        masks: Mapping[str, Tensor],
    ) -> tuple[PrunedChannels, ...]:
        params = self.config.params
        if params.constrained:
            counts = {one.name: (one.size, self._kept(one)) for one in self.channels.prunable}
        else:
            counts = kept_units(self.channels, weights, masks, params.pruning_side)
        return tuple(
            PrunedChannels(name=name, before=before, after=after)
            for name, (before, after) in counts.items()
        )

    def _hooks(self) -> Iterable[tuple[str, Sequence[MaskHook]]]:
        return self.masks.hooks.items()

    def _kept(self, group_set: GroupSet) -> int:
        """Return how many groups the mask of a producer leaves."""
        names = self.masks.hooks
        member = next(m for m in group_set.by_role(Role.PRODUCER) if m.parameter in names)
        mask = names[member.parameter][0].mask.movedim(member.axis, 0).flatten(1)
        entries = torch.tensor(member.indices[:, 0].tolist(), device=mask.device)
        return int((mask != 0).any(dim=1)[entries].sum())

    def _weights(self) -> dict[str, Tensor]:
        return {name: one.detach() for name, one in raw_parameters(self.model).items()}


@final
@register_algorithm(FilterPruningConfig)
class FilterPruningBuilder(Builder[FilterPruningConfig]):
    """Plans masks on everything that carries channels which may be removed."""

    def __init__(self, config: FilterPruningConfig) -> None:
        super().__init__(config)
        self._found: tuple[NNCFNetwork, _Subject] | None = None

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        subject = self._subject(model)
        prunable = subject.channels.prunable
        if not prunable:
            reasons = "; ".join(list(subject.channels.fixed.values())[:5])
            raise CompressionError(
                "filter_pruning finds no channels that it may remove: "
                f"{reasons or 'no operation produces any'}. Widen the scopes, set "
                "'prune_first_conv' or 'prune_downsample_convs', or take the item out.",
            )
        params = raw_parameters(model)
        without = frozenset() if self.config.params.prune_batch_norms else subject.norms
        axes: dict[str, set[int]] = {}
        for member in (m for one in prunable for m in one.members if not m.is_buffer):
            if member.parameter not in without:
                axes.setdefault(member.parameter, set()).add(member.axis)
        names = aliases(model)
        return [
            Insertion(
                WeightSite.of(alias),
                MaskHook.along(params[name], carried),
                Priority.PRUNING,
                ALGORITHM,
            )
            for name, carried in axes.items()
            for alias in names[name]
        ]

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> FilterPruningController:
        masks = MaskSet.of(model, insertions)
        return FilterPruningController(model, self.config, masks, self._subject(model))

    def _subject(self, model: NNCFNetwork) -> _Subject:
        """Return what there is to prune in `model`, found at the first call for it."""
        if self._found is None or self._found[0] is not model:
            self._found = (model, self._find(model))
        return self._found[1]

    def _find(self, model: NNCFNetwork) -> _Subject:
        params = self.config.params
        graph = model.nncf.graph
        spared = Spared(
            first=not params.prune_first_conv,
            downsampling=not params.prune_downsample_convs,
        )
        considered = list(self.considered(model))
        channels = spare(model.nncf.channels, model, graph, considered, spared)
        return _Subject(
            channels=channels if params.constrained else read_within(channels, model, considered),
            norms=norm_parameters(model, graph.operations),
            macs=WeightMacs.of(model, graph),
            graph=graph,
        )
