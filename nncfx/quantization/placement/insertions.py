"""From a plan to quantizers in a model."""

from collections.abc import Sequence
from dataclasses import dataclass

from nncfx.controllers.base.weights import constants_of
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.placement.plan import PlannedQuantizer, QuantizationPlan
from nncfx.tracing import Insertion, Priority, Site, WeightSite

__all__ = ["ALGORITHM", "PlacedQuantizer", "insertions_of", "place_quantizers"]

ALGORITHM = "quantization"


@dataclass(frozen=True)
class PlacedQuantizer:
    """A planned quantizer and its hook.

    Attributes:
        planned: What was planned; the `spec` of the hook may differ by the sign.
        hook: The module.
        sites: Where it stands: the planned sites, and those of the weight's other readers.
    """

    planned: PlannedQuantizer
    hook: Quantizer
    sites: tuple[Site, ...]


def place_quantizers(model: NNCFNetwork, plan: QuantizationPlan) -> list[PlacedQuantizer]:
    """Return a hook for each quantizer of `plan`; a weight that modules share has one.

    Args:
        model: The wrapped model; it is not changed.
        plan: Made from its graph.
    """
    parameters = constants_of(model)
    names: dict[int, list[str]] = {}
    for name, one in parameters.items():
        names.setdefault(id(one), []).append(name)
    first = next(iter(parameters.values()), None)
    placed: list[PlacedQuantizer] = []
    seen: set[int] = set()
    for planned in plan.quantizers:
        if not planned.parameter:
            hook = Quantizer(planned.spec, () if planned.scales is None else (planned.scales,))
            device = None if first is None else first.device
            placed.append(PlacedQuantizer(planned, hook.to(device), planned.sites))
            continue
        weight = parameters.get(planned.parameter)
        if weight is None or id(weight) in seen:
            continue
        seen.add(id(weight))
        axis = planned.spec.axis
        hook = Quantizer(planned.spec, () if axis is None else (weight.shape[axis],))
        sites = tuple(WeightSite.of(one) for one in names[id(weight)])
        placed.append(PlacedQuantizer(planned, hook.to(weight.device), sites))
    return placed


def insertions_of(
    placed: Sequence[PlacedQuantizer], algorithm: str = ALGORITHM
) -> list[Insertion]:
    """Return the insertions of the hooks at their sites."""
    return [
        Insertion(site, one.hook, Priority.QUANTIZATION, algorithm)
        for one in placed
        for site in one.sites
    ]
