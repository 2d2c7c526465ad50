"""The base builder of algorithms that zero whole channels."""

import abc
import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeVar, final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.branch_costs import BranchCosts
from nncfx.algorithms.channel_pruning.choice import ChannelChoice, choice_of
from nncfx.algorithms.channel_pruning.config import ChannelPruningConfig
from nncfx.algorithms.channel_pruning.controller import ChannelPruningController, PruningSubject
from nncfx.algorithms.channel_pruning.masked_norm_statistics import LivingNorms, with_hooks_only
from nncfx.algorithms.channel_pruning.scopes import keep_classes, read_within, spare, take_trained
from nncfx.channels import analyze_channels
from nncfx.channels.trace import FIXABLE
from nncfx.config import PruningConfig
from nncfx.controllers.base.builder import Builder
from nncfx.controllers.base.weights import aliases, norm_parameters, raw_parameters
from nncfx.controllers.masks.costs import Costs, WeightCosts, costs_of
from nncfx.controllers.masks.masking import MaskHook, MaskSet
from nncfx.errors import CompressionError, shortened
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, Priority, WeightSite
from nncfx.tracing.calls.module_check import parametrization_fix

_LOGGER = logging.getLogger(__name__)
_SHOWN: Final = 3

C = TypeVar("C", bound=PruningConfig)
G = TypeVar("G", bound=ChannelPruningConfig)


class ChannelPruningBuilder(Builder[C]):
    """Plans masks on everything that carries prunable channels."""

    def __init__(self, config: C) -> None:
        super().__init__(config)
        self._found: tuple[NNCFNetwork, PruningSubject] | None = None

    @abc.abstractmethod
    def of_its_kind(self, model: NNCFNetwork) -> Channels:
        """Return the model's channels, with sets that the algorithm does not prune fixed."""

    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        """Return the channels of its kind, with sets outside `considered` operations fixed."""
        return spare(self.of_its_kind(model), model, model.nncf.graph, considered)

    @abc.abstractmethod
    def choice(self) -> ChannelChoice:
        """Return how the algorithm chooses among its channels."""

    @override
    @final
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        subject = self._subject(model)
        prunable = subject.channels.prunable
        if not prunable:
            found = dict.fromkeys(subject.channels.fixed.values())  # unique, in order
            reasons = "; ".join(list(found)[:5])
            raise CompressionError(
                f"{self.config.algorithm} finds no channels that it may remove: "
                f"{reasons or 'no operation produces any'}. Widen the scopes, set "
                "'prune_first_conv' or 'prune_downsample_convs' of filter_pruning, or take the "
                f"item out.{parametrization_fix(model)}"
            )
        self._warn_fixed_channels(subject.channels)
        axes: dict[str, set[int]] = {}
        for member in (m for one in prunable for m in one.members if not m.is_buffer):
            if member.parameter not in subject.without:
                axes.setdefault(member.parameter, set()).add(member.axis)
        params = raw_parameters(model)
        names = aliases(model)
        masks = [
            Insertion(
                WeightSite.of(alias),
                MaskHook.along(params[name], carried),
                Priority.PRUNING,
                self.config.algorithm,
            )
            for name, carried in axes.items()
            for alias in names[name]
        ]
        return [*masks, *LivingNorms.plan(subject.channels, model, self.config.algorithm)]

    def _warn_fixed_channels(self, channels: Channels) -> None:
        """Warn about channels that stay for a reason which the user can fix."""
        by_reason: dict[str, list[str]] = {}
        for name, reason in channels.fixed.items():
            if any(mark in reason for mark in FIXABLE):
                by_reason.setdefault(reason, []).append(f"'{name}'")
        for reason, names in list(by_reason.items())[:_SHOWN]:
            _LOGGER.warning(
                "%s leaves the channels of %s alone: %s.",
                self.config.algorithm,
                shortened(names, 1),
                reason,
            )

    @override
    @final
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> ChannelPruningController:
        hooks = MaskSet.of(model, insertions), LivingNorms.of(insertions)
        return ChannelPruningController(model, self.config, hooks, self._subject(model))

    def _subject(self, model: NNCFNetwork) -> PruningSubject:
        """Return the subject of `model`, cached after the first call."""
        if self._found is None or self._found[0] is not model:
            self._found = (model, self._find(model))
        return self._found[1]

    def _find(self, model: NNCFNetwork) -> PruningSubject:
        graph, choice = model.nncf.graph, self.choice()
        considered = list(self.considered(model))
        channels = take_trained(self.taken(model, considered))
        if self.config.params.form == "class":
            channels = keep_classes(channels)
        norms = norm_parameters(model, graph.operations)
        macs, parameters = (
            WeightCosts.in_macs(model, graph),
            WeightCosts.in_parameters(model, graph),
        )
        costs = costs_of(model, channels, self.config.params)

        def whole(costs: Costs) -> Costs:
            if not choice.is_of_sets:
                return costs
            return BranchCosts(costs=costs, channels=model.nncf.channels, model=model)

        return PruningSubject(
            channels=channels
            if choice.ranking is None
            else read_within(channels, model, considered),
            without=frozenset() if self.config.params.prune_batch_norms else norms,
            macs=whole(macs),
            parameters=whole(parameters),
            graph=graph,
            choice=choice,
            costs=None if costs is None else whole(costs),
        )


class GroupPruningBuilder(ChannelPruningBuilder[G]):
    """Plans masks of channel groups, chosen by the config's parameters."""

    @override
    def of_its_kind(self, model: NNCFNetwork) -> Channels:
        """Return the model's channels; the config says whether those of norms are prunable."""
        if not self.config.params.living_norms:
            return model.nncf.channels
        found = analyze_channels(
            model,
            model.nncf.example_inputs,
            further_inputs=model.nncf.further_inputs,
            living_norms=True,
        )
        return with_hooks_only(found, model.nncf.graph)

    @override
    @final
    def choice(self) -> ChannelChoice:
        return choice_of(self.config.params)
