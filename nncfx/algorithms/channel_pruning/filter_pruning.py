"""Filter pruning: whole filters are zero, with all that carries their channels.

Channels of linear layers go as well, as in NNCF.

Source: NNCF 2.19, "Filter pruning".
"""

import logging
from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import GroupPruningBuilder
from nncfx.algorithms.channel_pruning.config import FilterPruningConfig
from nncfx.algorithms.channel_pruning.scopes import Spared, kept_first_convolutions, spare
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["FilterPruningBuilder"]

_LOGGER = logging.getLogger(__name__)


@final
@register_algorithm(FilterPruningConfig)
class FilterPruningBuilder(GroupPruningBuilder[FilterPruningConfig]):
    """Takes all channels, less those of first and of strided convolutions as the config says."""

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        params = self.config.params
        spared = Spared(
            first=not params.prune_first_conv,
            downsampling=not params.prune_downsample_convs,
        )
        graph = model.nncf.graph
        channels = spare(self.channels_of(model), model, graph, considered, spared)
        if params.prune_first_conv:
            for address, reason in kept_first_convolutions(channels, model, graph).items():
                _LOGGER.warning(
                    "'prune_first_conv' has no effect on '%s', which keeps its channels: %s.",
                    address,
                    reason,
                )
        return channels
