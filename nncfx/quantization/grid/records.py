"""Convert quantizers and their plans to plain values for files, and back."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from nncfx.controllers.base.weights import raw_parameters
from nncfx.errors import NNCFXError, StorageError
from nncfx.json_codec import decode, encode
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.plan import QuantizationPlan
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.targets import TARGETS, target_named
from nncfx.tracing import Insertion, PostSite, PreSite, Site, WeightSite
from nncfx.tracing.hooks.validation import check_algorithm

_SITES: dict[str, type[Site]] = {"weight": WeightSite, "pre": PreSite, "post": PostSite}
_MOST: Final = 2**31
"""Most scales of all quantizers together; a file with more is damaged."""


def quantizer_records(
    model: NNCFNetwork, *, without: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the quantizers of `model`, except their tensors, as JSON values.

    Quantizers of the algorithms in `without` are left out.
    """
    plans = {id(one): number for number, one in enumerate(_plans(model, without))}
    records: dict[int, dict[str, Any]] = {}
    for one in model.nncf.hooks:
        hook = one.hook
        if not isinstance(hook, Quantizer) or one.algorithm in without:
            continue
        record = records.setdefault(
            id(hook),
            {
                "algorithm": one.algorithm,
                "priority": int(one.priority),
                "spec": encode(hook.spec, omit="defaults"),
                "shape": list(hook.step.shape),
                "sites": [],
            }
            | ({"learned": list(hook._parameters)} if hook.is_learned else {})  # noqa: SLF001 (names alone)
            | ({"was_learned": True} if hook.was_learned else {})
            | ({} if hook.is_active else {"active": False})
            | ({} if hook.plan is None else {"planned": [plans[id(hook.plan)], hook.number]}),
        )
        record["sites"].append(_site_record(one.site))
    return list(records.values())


def plan_records(model: NNCFNetwork, *, without: Collection[str] = ()) -> list[dict[str, Any]]:
    """Return the plans of `model`, except what `quantizer_records` holds, as JSON values."""
    records = []
    for plan in _plans(model, without):
        # grids and sites are in the records of the quantizers
        rest = tuple(replace(one, spec=QuantizerSpec(), sites=()) for one in plan.quantizers)
        # a file does not depend on the CPU that wrote it
        plain = replace(plan, quantizers=rest, saturating=0)
        record = encode(plain, omit="defaults")
        if plan.target is not None and TARGETS.get(plan.target.name) == plan.target:
            record["target"] = plan.target.name
        records.append(record)
    return records


def _plans(model: NNCFNetwork, without: Collection[str]) -> list[QuantizationPlan]:
    kept = [one.hook for one in model.nncf.hooks if one.algorithm not in without]
    plans = [one.plan for one in kept if isinstance(one, Quantizer) and one.plan is not None]
    return list({id(one): one for one in plans}.values())


def _site_record(site: Site) -> list[Any]:
    kind = next(name for name, cls in _SITES.items() if isinstance(site, cls))
    return [kind, *dataclasses.astuple(site)]


def insertions_from(
    records: Sequence[Any], plans: Sequence[Any] = (), *, most: int = _MOST
) -> list[Insertion]:
    """Return the insertions described by `quantizer_records`, without the values of tensors.

    `plans` is the result of `plan_records`; older files have none. A file whose quantizers have
    more than `most` scales together is damaged.

    Raises:
        StorageError: a record is damaged.
    """
    insertions = []
    placed: list[tuple[Quantizer, int, int, tuple[Site, ...]]] = []
    left = most
    for record in records:
        try:
            shape = tuple(map(int, record["shape"]))
            left -= math.prod(shape)
            if left < 0:
                raise StorageError(f"its scales have the shape {shape}")
            hook = Quantizer(decode(QuantizerSpec, record["spec"]), shape)
            if record.get("learned"):
                hook.learn(logarithmic="log2_peak" in record["learned"])
            hook.was_learned = bool(record.get("was_learned", False))
            hook.is_active = bool(record.get("active", True))
            check_algorithm(str(record["algorithm"]))
            found = [
                Insertion(_site(*site), hook, int(record["priority"]), str(record["algorithm"]))
                for site in record["sites"]
            ]
            insertions += found
            if "planned" in record:
                placed.append((hook, *record["planned"], tuple(one.site for one in found)))
        except (
            *(KeyError, TypeError, ValueError, OverflowError),
            *(RuntimeError, NNCFXError),
        ) as error:
            raise StorageError(
                f"A quantizer in the file is damaged ({error}). Write the file again."
            ) from error
    _give_plans(placed, plans)
    return insertions


def check_axes(insertions: Iterable[Insertion], model: NNCFNetwork) -> None:
    """Check that the scales of quantizers from a file fit the weights of `model`.

    Raises:
        StorageError: a weight lacks the axis of the scales, or it has another length.
    """
    weights = raw_parameters(model)
    for one in insertions:
        weight, hook = weights.get(str(one.site)), one.hook
        if not isinstance(hook, Quantizer) or weight is None or hook.spec.axis is None:
            continue
        axis, scales = hook.spec.axis, hook.step.numel()
        if not 0 <= axis < weight.dim() or weight.shape[axis] != scales:
            raise StorageError(
                f"The file is damaged: a quantizer has {scales} scales along axis {axis} of "
                f"'{one.site}', whose shape is {tuple(weight.shape)}. Write the file again."
            )


def _give_plans(
    placed: Sequence[tuple[Quantizer, int, int, tuple[Site, ...]]], records: Sequence[Any]
) -> None:
    """Assign plans to quantizers.

    `placed` holds each quantizer with the index of its plan, its index in that plan, and its
    sites.
    """
    try:
        plans = []
        for record in records:
            target = record.get("target")
            known = target_named(target) if isinstance(target, str) else None
            said = record if known is None else {**record, "target": encode(known)}
            plans.append(decode(QuantizationPlan, said))
        for hook, place, number, sites in placed:
            own = list(plans[place].quantizers)
            own[number] = replace(own[number], spec=hook.spec, sites=sites)
            plans[place] = replace(plans[place], quantizers=tuple(own))
        for hook, place, number, _ in placed:
            hook.plan, hook.number = plans[place], number
    except (LookupError, TypeError, ValueError, AttributeError, NNCFXError) as error:
        raise StorageError(
            f"The plan of quantization in the file is damaged ({error}). Write the file again."
        ) from error


def _site(kind: str, *place: Any) -> Site:  # noqa: ANN401 (as JSON gives it)
    made = _SITES[kind](*place)
    for field, value in zip(dataclasses.fields(made), place, strict=False):
        if not isinstance(value, int if field.name == "port" else str):
            raise TypeError(f"{field.name} is {value!r}")
    return made
