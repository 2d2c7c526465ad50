"""Builders of the algorithms that zero filters, neurons, heads, branches, or all of these.

Source: NNCF 2.19, "Filter pruning"; Michel et al., "Are Sixteen Heads Really Better than One?",
2019, for heads, with scores of weights.
"""

import logging
from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import ChannelPruningBuilder, GroupPruningBuilder
from nncfx.algorithms.channel_pruning.choice import WHOLE_BRANCHES, ChannelChoice
from nncfx.algorithms.channel_pruning.config import (
    BranchPruningConfig,
    FilterPruningConfig,
    HeadPruningConfig,
    NeuronPruningConfig,
    StructurePruningConfig,
)
from nncfx.algorithms.channel_pruning.scopes import (
    kept_first_convolutions,
    spare,
    take_branches,
    take_heads,
    take_neurons,
)
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

_LOGGER = logging.getLogger(__name__)


@final
@register_algorithm(StructurePruningConfig)
class StructurePruningBuilder(GroupPruningBuilder[StructurePruningConfig]):
    """Prunes all channels within the scopes: filters, neurons, heads, residual streams."""


@final
@register_algorithm(HeadPruningConfig)
class HeadPruningBuilder(GroupPruningBuilder[HeadPruningConfig]):
    """Prunes the channels that attentions sum over or pass on: queries, keys and values."""

    @override
    def of_its_kind(self, model: NNCFNetwork) -> Channels:
        return take_heads(super().of_its_kind(model), model, model.nncf.graph)


@final
@register_algorithm(NeuronPruningConfig)
class NeuronPruningBuilder(GroupPruningBuilder[NeuronPruningConfig]):
    """Prunes the channels that only linear layers produce, except attention heads.

    These are the hidden widths of perceptrons, of the feed-forward parts of transformers, and of
    experts.
    """

    @override
    def of_its_kind(self, model: NNCFNetwork) -> Channels:
        return take_neurons(super().of_its_kind(model), model, model.nncf.graph)


@final
@register_algorithm(BranchPruningConfig)
class BranchPruningBuilder(ChannelPruningBuilder[BranchPruningConfig]):
    """Prunes the channels that carry a whole residual branch, which prunes in depth.

    A zeroed branch leaves a constant.
    """

    @override
    def of_its_kind(self, model: NNCFNetwork) -> Channels:
        return take_branches(model.nncf.channels)

    @override
    def choice(self) -> ChannelChoice:
        return WHOLE_BRANCHES


@final
@register_algorithm(FilterPruningConfig)
class FilterPruningBuilder(GroupPruningBuilder[FilterPruningConfig]):
    """Prunes all channels, except of first and strided convolutions if the config says so.

    Channels of linear layers are pruned too, as in NNCF.
    """

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        params = self.config.params
        graph = model.nncf.graph
        channels = spare(
            self.of_its_kind(model),
            model,
            graph,
            considered,
            first=not params.prune_first_conv,
            downsampling=not params.prune_downsample_convs,
        )
        if params.prune_first_conv:
            for address, reason in kept_first_convolutions(channels, model, graph).items():
                _LOGGER.warning(
                    "'prune_first_conv' has no effect on '%s', which keeps its channels: %s.",
                    address,
                    reason,
                )
        return channels
