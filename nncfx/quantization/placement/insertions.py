"""Insert the quantizers of a plan into a model, and find the plans of a model."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from torch import nn

from nncfx.controllers.base.weights import constants_of
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.plan import PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.targets import Target
from nncfx.tracing import Insertion, Priority, WeightSite


def place_quantizers(
    model: NNCFNetwork, plan: QuantizationPlan, *, at_all_names: bool = True
) -> list[Quantizer]:
    """Return a hook for each quantizer of `plan`; a weight that modules share has one hook.

    `model` is not changed. Each hook refers to a copy of the plan with the sites and numbers of
    scales it has in `model`. Without `at_all_names`, a shared weight stays in float if it is
    read under a name that is not in the plan.

    Raises:
        ArgumentError: a weight has a quantizer already.
    """
    parameters = constants_of(model)
    names: dict[int, list[str]] = {}
    for name, one in parameters.items():
        names.setdefault(id(one), []).append(name)
    device = next((one.device for one in parameters.values()), None)
    placed: dict[object, PlannedQuantizer] = {}
    for planned in plan.quantizers:
        if not planned.parameter:
            placed[planned.name] = planned
            continue
        weight = parameters.get(planned.parameter)
        if weight is None:
            continue
        before = placed.get(id(weight), replace(planned, sites=()))
        read = names[id(weight)] if at_all_names else [planned.parameter]
        sites = dict.fromkeys((*before.sites, *map(WeightSite.of, read)))
        axis = planned.spec.axis
        scales = weight.shape[axis] if planned.scales is None and axis is not None else None
        placed[id(weight)] = replace(before, sites=tuple(sites), scales=before.scales or scales)
    _check_unquantized(model, placed.values())
    plan = replace(plan, quantizers=tuple(placed.values()))
    hooks = []
    for number, planned in enumerate(plan.quantizers):
        hook = Quantizer(planned.spec, () if planned.scales is None else (planned.scales,))
        hook.plan, hook.number = plan, number
        hooks.append(hook.to(device))
    return hooks


def _check_unquantized(model: NNCFNetwork, quantizers: Iterable[PlannedQuantizer]) -> None:
    """Check that no weight is quantized twice: a file would hold the first integers as floats."""
    found = {one.site: one for one in model.nncf.hooks if isinstance(one.hook, Quantizer)}
    for site in (site for planned in quantizers for site in planned.sites):
        if isinstance(site, WeightSite) and site in found:
            before = found[site]
            assert isinstance(before.hook, Quantizer)  # noqa: S101 (only such are in it)
            bits = before.hook.spec.bits
            raise ArgumentError(
                f"'{site}' passes a quantizer of {bits} bits already, of '{before.algorithm}'; a "
                "second one would round what it rounds. Quantize the float model "
                f"(weight_bits={bits} keeps the width), call "
                f"model.nncf.remove('{before.algorithm}') first, or leave such layers to it with "
                "ignored_scopes."
            )


def without_hooks(hooks: Sequence[Quantizer], removed: Collection[Quantizer]) -> list[Quantizer]:
    """Return the hooks of one plan without those in `removed`, which their plan loses as well."""
    kept = [one for one in hooks if one not in removed]
    planned = tuple(one.planned for one in kept)
    plans = [replace(one.plan, quantizers=planned) for one in kept if one.plan is not None]
    for number, hook in enumerate(kept):
        hook.plan, hook.number = plans[0], number
    return kept


def insertions_of(hooks: Sequence[Quantizer]) -> list[Insertion]:
    """Return the insertions of placed hooks at their sites."""
    return [
        Insertion(site, hook, Priority.QUANTIZATION, hook.plan.algorithm)
        for hook in hooks
        if hook.plan is not None
        for site in hook.planned.sites
    ]


def insert_quantizers(model: NNCFNetwork, hooks: Sequence[Quantizer]) -> None:
    """Insert placed hooks into `model`."""
    model.nncf.register(insertions_of(hooks))
    model.nncf.commit()


def hooks_of(insertions: Sequence[Insertion]) -> list[Quantizer]:
    """Return the quantizers of `insertions`, each once."""
    return list(dict.fromkeys(one.hook for one in insertions if isinstance(one.hook, Quantizer)))


def plans_of(model: nn.Module) -> list[QuantizationPlan]:
    """Return the plans of the quantizers in `model` and its submodules."""
    hooks = [one for one in model.modules() if isinstance(one, Quantizer)]
    return list({id(one.plan): one.plan for one in hooks if one.plan is not None}.values())


def planned_target(model: nn.Module) -> Target | None:
    """Return the target that `model` is quantized for; None if no plan names one.

    Raises:
        ArgumentError: its parts are quantized for different targets.
    """
    found = {one.target.name: one.target for one in plans_of(model) if one.target is not None}
    if len(found) > 1:
        raise ArgumentError(
            f"Parts of {type(model).__name__} are quantized for {' and '.join(sorted(found))}; a "
            "file is for one target. Pass target=."
        )
    return next(iter(found.values()), None)
