"""Branch pruning: whole residual branches are zero but for a constant: pruning in depth."""

from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import ChannelPruningBuilder
from nncfx.algorithms.channel_pruning.choice import WHOLE_BRANCHES, ChannelChoice
from nncfx.algorithms.channel_pruning.config import BranchPruningConfig
from nncfx.algorithms.channel_pruning.scopes import NOTHING_SPARED, spare, take_branches
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["BranchPruningBuilder"]


@final
@register_algorithm(BranchPruningConfig)
class BranchPruningBuilder(ChannelPruningBuilder[BranchPruningConfig]):
    """Takes the channels through which alone a residual branch passes."""

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        graph = model.nncf.graph
        channels = take_branches(model.nncf.channels)
        return spare(channels, model, graph, considered, NOTHING_SPARED)

    @override
    def choice(self) -> ChannelChoice:
        return WHOLE_BRANCHES
