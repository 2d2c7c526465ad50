"""Head pruning: whole attention heads are zero: queries, keys, values, and what reads them.

Source: Michel et al., "Are Sixteen Heads Really Better than One?", 2019; scores are of weights.
"""

from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import GroupPruningBuilder
from nncfx.algorithms.channel_pruning.config import HeadPruningConfig
from nncfx.algorithms.channel_pruning.scopes import NOTHING_SPARED, spare, take_heads
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["HeadPruningBuilder"]


@final
@register_algorithm(HeadPruningConfig)
class HeadPruningBuilder(GroupPruningBuilder[HeadPruningConfig]):
    """Takes the channels that attentions sum over or hand on."""

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        graph = model.nncf.graph
        channels = take_heads(self.channels_of(model), model, graph)
        return spare(channels, model, graph, considered, NOTHING_SPARED)
