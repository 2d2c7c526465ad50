"""Multiply-accumulates by weight: what masks on weights would save."""

import dataclasses
from collections.abc import Mapping
from typing import final

from torch import Tensor, nn

from nncfx.controllers.weights import aliases, raw_parameters
from nncfx.graph import NNCFGraph, macs

__all__ = ["WeightMacs"]


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightMacs:
    """How a model's multiply-accumulates (MACs) divide among its weights.

    Attributes:
        by_weight: MACs of the operations that read a weight, by its first dotted name.
        total: MACs of the whole model, those without a weight included.
    """

    by_weight: Mapping[str, int]
    total: int

    @classmethod
    def of(cls, model: nn.Module, graph: NNCFGraph) -> "WeightMacs":
        """Return the MACs of `model` as `graph` traced it."""
        counts = macs(graph)
        names = aliases(model)
        parameters = raw_parameters(model)
        by_weight: dict[str, int] = {}
        for one in graph.operations:
            read = {names[p][0] for p in one.parameters.values() if p in names}
            for name in read:
                if one.address in counts and parameters[name].ndim > 1:
                    by_weight[name] = by_weight.get(name, 0) + counts[one.address]
        return cls(by_weight=by_weight, total=sum(counts.values()))

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of all MACs that goes with the entries that `masks` remove.

        An operation costs as much as its weight has entries left, which is exact where whole
        rows and columns go. 0 for a model without MACs.
        """
        gone = sum(
            self.by_weight[name] * (1 - float(mask.double().mean()))
            for name, mask in masks.items()
            if name in self.by_weight
        )
        return gone / self.total if self.total else 0.0
