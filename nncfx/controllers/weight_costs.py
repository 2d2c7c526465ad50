"""What weights cost, in multiply-accumulates or in parameters: what masks on them would save."""

import dataclasses
from collections.abc import Mapping
from typing import final

from torch import Tensor, nn

from nncfx.config.pruning import PruningParams
from nncfx.controllers.costs import register_costs
from nncfx.controllers.weights import aliases, own_parameters, raw_parameters
from nncfx.graph import NNCFGraph, macs
from nncfx.graph.channels import Channels
from nncfx.tracing import NNCFNetwork

__all__ = ["WeightCosts"]


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightCosts:
    """How what a model costs divides among its weights.

    Attributes:
        unit: What is counted, in words.
        by_weight: Costs of a weight, by its first dotted name.
        total: Costs of the whole model, those of no weight included.
    """

    unit: str
    by_weight: Mapping[str, int]
    total: int

    @classmethod
    def in_macs(cls, model: nn.Module, graph: NNCFGraph) -> "WeightCosts":
        """Return the multiply-accumulates (MACs) of `model` as `graph` traced it.

        An operation that reads several weights, as a recurrent layer does, divides its count among
        them by their numbers of entries.
        """
        counts = macs(graph)
        names = aliases(model)
        parameters = raw_parameters(model)
        by_weight: dict[str, int] = {}
        for one in graph.operations:
            if one.address not in counts:
                continue
            read = {names[p][0] for p in one.parameters.values() if p in names}
            sizes = {name: parameters[name].numel() for name in read if parameters[name].ndim > 1}
            for name, size in sizes.items():
                share = counts[one.address] * size // sum(sizes.values())
                by_weight[name] = by_weight.get(name, 0) + share
        unit = "multiply-accumulates"
        return cls(unit=unit, by_weight=by_weight, total=sum(counts.values()))

    @classmethod
    def in_parameters(cls, model: nn.Module) -> "WeightCosts":
        """Return the numbers of entries of the model's parameters; a shared one counts once."""
        total = sum(parameter.numel() for parameter in own_parameters(model))
        by_weight = {name: one.numel() for name, one in raw_parameters(model).items()}
        return cls(unit="parameters", by_weight=by_weight, total=total)

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the total that goes with the entries that `masks` remove.

        A weight costs in proportion to the entries it has left, which is exact where whole rows
        and columns go. 0 for a model that costs nothing.

        Args:
            masks: By first dotted names; broadcastable to the weights.
        """
        gone = sum(
            self.by_weight[name] * (1 - float(mask.double().mean()))
            for name, mask in masks.items()
            if name in self.by_weight
        )
        return gone / self.total if self.total else 0.0


@register_costs("macs")
def _in_macs(model: NNCFNetwork, _: Channels, __: PruningParams) -> WeightCosts:
    return WeightCosts.in_macs(model, model.nncf.graph)


@register_costs("parameters")
def _in_parameters(model: NNCFNetwork, _: Channels, __: PruningParams) -> WeightCosts:
    return WeightCosts.in_parameters(model)
