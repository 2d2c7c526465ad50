"""The builder of weight clustering."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, final

from typing_extensions import override

from nncfx.algorithms.weight_clustering.config import WeightClusteringConfig
from nncfx.algorithms.weight_clustering.controller import WeightClusteringController
from nncfx.algorithms.weight_clustering.hook import ClusterHook
from nncfx.config import Fault, config_error
from nncfx.controllers import Builder, plan_on_weights, register_algorithm
from nncfx.controllers.base.weights import aliases, hooks_by_weight
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, Priority


@final
@register_algorithm(WeightClusteringConfig)
class WeightClusteringBuilder(Builder[WeightClusteringConfig]):
    """Plans hooks on weights of convolutions, linear and recurrent layers, tables, experts.

    They run after hooks of sparsity, so pruned weights are zero when they are clustered.
    """

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        summed = self.config.params.gradient == "sum"
        made = functools.partial(ClusterHook, summed=summed)
        return plan_on_weights(self, model, made, priority=Priority.SPARSITY + 1, are_real=True)

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> WeightClusteringController:
        hooks = hooks_by_weight(model, insertions, ClusterHook)
        own = self._bits_by_parameter(model, aliases(model))
        bits = {name: own.get(name, self.config.bits) for name in hooks}
        return WeightClusteringController(model, self.config, hooks, bits)

    def _bits_by_parameter(
        self, model: NNCFNetwork, names: Mapping[str, tuple[str, ...]]
    ) -> dict[str, int]:
        chosen: Mapping[str, Any] = self.config.bits_by_scope or {}
        graph = model.nncf.graph
        for scope in graph.unmatched(chosen):
            problem = (
                f"'{scope}' matches no operation.{graph.hint(scope)} Print "
                "model.nncf.graph.addresses for those there are."
            )
            raise config_error([Fault(path="bits_by_scope", problem=problem)])
        return {
            names[parameter][0]: bits
            for scope, bits in chosen.items()
            for operation in graph.select([scope])
            for parameter in operation.parameters.values()
            if parameter in names
        }
