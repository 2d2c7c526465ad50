"""Structure pruning: channels of any kind are zero: filters, neurons, heads, residual streams."""

from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import GroupPruningBuilder
from nncfx.algorithms.channel_pruning.config import StructurePruningConfig
from nncfx.algorithms.channel_pruning.scopes import NOTHING_SPARED, spare
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["StructurePruningBuilder"]


@final
@register_algorithm(StructurePruningConfig)
class StructurePruningBuilder(GroupPruningBuilder[StructurePruningConfig]):
    """Takes all channels within the scopes."""

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        channels, graph = self.channels_of(model), model.nncf.graph
        return spare(channels, model, graph, considered, NOTHING_SPARED)
