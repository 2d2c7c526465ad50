"""Costs that masks save, of which a level can be a fraction, by the name of the budget.

This module has the costs of weights: multiply-accumulates and parameters.
"""

import dataclasses
import functools
import importlib
import operator
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Final, Protocol, TypeAlias, final

from torch import Tensor, nn

from nncfx.config.pruning_schedule import Budget, PruningParams
from nncfx.controllers.base.weights import aliases, raw_parameters
from nncfx.graph import NNCFGraph, macs
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork
from nncfx.tracing.hooks.store import own_parameters
from nncfx.tracing.record.constant_operands import constant_operands


class Costs(Protocol):
    """The costs of a model, and the fraction that masks on its weights would save."""

    @property
    def unit(self) -> str:
        """The unit of costs, in words."""

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the total cost that `masks` save.

        Args:
            masks: Bools by first dotted names; broadcastable to the weights.
        """


Maker: TypeAlias = Callable[[NNCFNetwork, Channels, PruningParams], Costs]

_MAKERS: Final[dict[Budget, Maker]] = {}
_ABOVE: Final[Mapping[Budget, str]] = {"latency": "nncfx.compressor.latency_budget"}
"""Modules that register budgets but are in a higher layer, because they need runtimes."""


def register_costs(budget: Budget) -> Callable[[Maker], Maker]:
    """Return a decorator that registers the function that creates the costs of a budget."""

    def register(maker: Maker) -> Maker:
        _MAKERS[budget] = maker
        return maker

    return register


def costs_of(model: NNCFNetwork, channels: Channels, params: PruningParams) -> Costs | None:
    """Return the costs of which the level of `params` is a fraction; None for group counts.

    Args:
        model: The wrapped model.
        channels: The model's channels; sets that must not be removed are fixed.
        params: The parameters with the name of the budget.
    """
    if params.budget == "groups":
        return None
    if params.budget in _ABOVE:
        importlib.import_module(_ABOVE[params.budget])
    return _MAKERS[params.budget](model, channels, params)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightCosts:
    """The costs of a model, divided among its weights.

    Attributes:
        unit: The unit of costs, in words.
        by_weight: Costs of a weight, by its first dotted name.
        total: Costs of the whole model, including those of no weight.
        lengths: For weights whose rows are divided by their length, the parameter that multiplies
            them; a row is removed with its entry there.
    """

    unit: str
    by_weight: Mapping[str, int]
    total: int
    lengths: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def in_macs(cls, model: nn.Module, graph: NNCFGraph) -> "WeightCosts":
        """Return the multiply-accumulates (MACs) of `model` as traced in `graph`.

        An operation that reads several weights, such as a recurrent layer, divides its count among
        them by their numbers of entries. If its weight is computed, the count is assigned to
        the parameters from which it is computed.
        """
        counts = macs(graph)
        names = aliases(model)
        parameters = raw_parameters(model)
        read, lengths = constant_operands(graph), _lengths(model, graph)
        multiplied = {p for p, one in parameters.items() if one.ndim > 1} - set(lengths.values())
        by_weight: dict[str, int] = {}
        for one in graph.operations:
            if one.address not in counts:
                continue
            own, computed = (
                multiplied & {names[p][0] for p in found if p in names}
                for found in (one.parameters.values(), chain(*read[one.address].values()))
            )
            sizes = {name: parameters[name].numel() for name in sorted(own or computed)}
            whole = max(sum(sizes.values()), 1)  # a layer of no width costs nothing
            for name, size in sizes.items():
                share = counts[one.address] * size // whole
                by_weight[name] = by_weight.get(name, 0) + share
        unit = "multiply-accumulates"
        return cls(unit=unit, by_weight=by_weight, total=sum(counts.values()), lengths=lengths)

    @classmethod
    def in_parameters(cls, model: nn.Module, graph: NNCFGraph) -> "WeightCosts":
        """Return the numbers of entries of the model's parameters; shared ones count once."""
        total = sum(parameter.numel() for parameter in own_parameters(model))
        by_weight = {name: one.numel() for name, one in raw_parameters(model).items()}
        lengths = _lengths(model, graph)
        return cls(unit="parameters", by_weight=by_weight, total=total, lengths=lengths)

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the total cost that `masks` save.

        A weight costs in proportion to its remaining entries, which is exact if whole rows and
        columns are removed. 0 for a model without costs.

        Args:
            masks: Bools by first dotted names; broadcastable to the weights.
        """
        gone = 0.0
        for name, cost in self.by_weight.items():
            own = (masks.get(name), masks.get(self.lengths.get(name, "")))
            there = [mask for mask in own if mask is not None]
            if there:
                kept = functools.reduce(operator.and_, there)
                gone += cost * (1 - int(kept.count_nonzero()) / kept.numel())
        return gone / self.total if self.total else 0.0


def _lengths(model: nn.Module, graph: NNCFGraph) -> dict[str, str]:
    """Return weights that a weight norm divides, with their lengths, by first dotted names."""
    names = aliases(model)
    read = (one.parameters for one in graph.operations if one.function == "_weight_norm")
    pairs = [(each[0], each[1]) for each in read if {0, 1} <= each.keys()]
    return {names[v][0]: names[g][0] for v, g in pairs if {v, g} <= names.keys()}


register_costs("macs")(lambda model, *_: WeightCosts.in_macs(model, model.nncf.graph))
register_costs("parameters")(lambda model, *_: WeightCosts.in_parameters(model, model.nncf.graph))
