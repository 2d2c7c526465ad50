"""What a level can be a fraction of: costs that masks save, by the name of the budget."""

import importlib
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from torch import Tensor

from nncfx.config.pruning_schedule import Budget, PruningParams
from nncfx.graph.channels import Channels
from nncfx.network import NNCFNetwork

__all__ = ["Costs", "costs_of", "register_costs"]


class Costs(Protocol):
    """What a model costs, and what masks on its weights would save."""

    @property
    def unit(self) -> str:
        """What is counted, in words."""

    def saved(self, masks: Mapping[str, Tensor]) -> float:
        """Return the fraction of the whole that goes with what `masks` remove.

        Args:
            masks: By first dotted names; broadcastable to the weights.
        """


Maker: TypeAlias = Callable[[NNCFNetwork, Channels, PruningParams], Costs]

_MAKERS: Final[dict[Budget, Maker]] = {}
_ABOVE: Final[Mapping[Budget, str]] = {"latency": "nncfx.compressor.latency_budget"}
"""The module that registers a budget and knows runtimes, which stand above the controllers."""


def register_costs(budget: Budget) -> Callable[[Maker], Maker]:
    """Return a decorator that names the function which makes the costs of a budget."""

    def register(maker: Maker) -> Maker:
        _MAKERS[budget] = maker
        return maker

    return register


def costs_of(model: NNCFNetwork, channels: Channels, params: PruningParams) -> Costs | None:
    """Return what the level of `params` is a fraction of; None for the number of groups.

    Args:
        model: The wrapped model.
        channels: Those that may go, the others fixed.
        params: Name the budget.
    """
    if params.budget == "groups":
        return None
    if params.budget in _ABOVE:
        importlib.import_module(_ABOVE[params.budget])
    return _MAKERS[params.budget](model, channels, params)
