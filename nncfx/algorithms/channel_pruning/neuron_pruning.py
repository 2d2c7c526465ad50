"""Neuron pruning: rows of linear layers are zero, with the columns that read them.

The hidden widths of perceptrons and of the feed-forward parts of transformers.
"""

from collections.abc import Iterable
from typing import final

from typing_extensions import override

from nncfx.algorithms.channel_pruning.builder import GroupPruningBuilder
from nncfx.algorithms.channel_pruning.config import NeuronPruningConfig
from nncfx.algorithms.channel_pruning.scopes import NOTHING_SPARED, spare, take_neurons
from nncfx.controllers import register_algorithm
from nncfx.graph import Operation
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["NeuronPruningBuilder"]


@final
@register_algorithm(NeuronPruningConfig)
class NeuronPruningBuilder(GroupPruningBuilder[NeuronPruningConfig]):
    """Takes the channels that only linear layers make, attention heads left out."""

    @override
    def taken(self, model: NNCFNetwork, considered: Iterable[Operation]) -> Channels:
        graph = model.nncf.graph
        channels = take_neurons(self.channels_of(model), model, graph)
        return spare(channels, model, graph, considered, NOTHING_SPARED)
