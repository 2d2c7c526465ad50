"""Install insertions in modules as weight chains, call plans and dynamic classes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch import nn

from nncfx.errors import TracingError
from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.storage.models.sharded_models import has_shards
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.module_stack import Place, Wiring, visits_of
from nncfx.tracing.hooks.activation_hooks import CALLS, CallPlan
from nncfx.tracing.hooks.boundary_hooks import Around, BoundaryHooks
from nncfx.tracing.hooks.call_hooks import CALL_HOOKS, CallHook
from nncfx.tracing.hooks.chain import CallHooks, HookChain, carry, drop
from nncfx.tracing.hooks.dynamic_class import (
    ClassSpec,
    HookedModule,
    change_class,
    original_class,
    restore_class,
    spec_of,
)
from nncfx.tracing.hooks.forward_method import forward_method
from nncfx.tracing.hooks.hooked_reads import NUMBERED
from nncfx.tracing.hooks.sites import Insertion, PreSite, Site, WeightSite
from nncfx.tracing.hooks.weight_hooks import weight_attribute

_OURS: Final = "_nncf"
"""Prefix of all instance attributes that wrapping and hooks add."""

_VISIBLE: Final = "nncfx"
"""Key of the forward pre-hook that makes torch's fused encoder layers call their modules."""

_NESTED: Final = "_nncf_use_nested_tensor"
"""The instance attribute that saves the encoder's flag `use_nested_tensor`."""


@dataclass
class _Load:
    """The hooks to install in one module."""

    weights: dict[str, HookChain] = field(default_factory=dict)
    before: dict[str, dict[int, HookChain]] = field(default_factory=lambda: defaultdict(dict))
    after: dict[str, dict[int, HookChain]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def addresses(self) -> list[str]:
        return list(dict.fromkeys((*self.before, *self.after)))


def install(
    model: nn.Module, wiring: Wiring, functions: Mapping[str, str], insertions: Sequence[Insertion]
) -> None:
    """Install the hooks of `insertions` in the modules of `model`, in the given order.

    Args:
        model: The wrapped model, without hooks.
        wiring: Where its operations are in its modules.
        functions: Function names by address.
        insertions: Valid insertions, sorted.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    loads = _loads(wiring, insertions, modules)
    plans = {
        name: plan
        for name, load in loads.items()
        if (plan := _plan(name, load, wiring, functions)) is not None
    }
    for name, plan in list(plans.items()):
        if plan.functions:
            for callee in wiring.callees.get(name, ()):
                known = plans.get(callee, CallPlan(callee))
                plans[callee] = replace(known, is_called_by_hooked=True)
    repeated = tuple(plan for plan in plans.values() if plan.is_repeated)
    if repeated:
        plans[""] = replace(plans.get("", CallPlan("")), counts=repeated)
        _number_in_parts(model, modules, repeated)
    names = dict.fromkeys((*loads, *plans))
    for name in names:
        weights = loads[name].weights if name in loads else {}
        _equip(modules[name], weights, plans.get(name))
    for module in _around(modules, [modules[name] for name in names]):
        _change(module, entries=_entries(module))
    told = [one.hook for one in insertions if isinstance(one.hook, CallHook)]
    if told:
        model.__dict__[CALL_HOOKS] = tuple(dict.fromkeys(told))
        _change(model, tells_calls=True)
    _keep_visible(modules, plans)


def uninstall(model: nn.Module) -> None:
    """Remove the hooks from all modules of `model`; the root stays wrapped."""
    for module in model.modules():
        if _NESTED in module.__dict__:
            module.use_nested_tensor = module.__dict__.pop(_NESTED)
        if isinstance(module, HookedModule):
            _strip_attributes(module)
            spec = spec_of(module)
            if spec.mixin is HookedModule:
                restore_class(module)
            else:
                change_class(module, ClassSpec(spec.original, spec.mixin))


def unhooked(model: nn.Module) -> nn.Module:
    """Return a copy of `model` without hooks that shares its parameters and buffers.

    Tensors of a sharded model are gathered. Use the copy for reading only, since writing to a
    shared tensor changes both models. The root stays wrapped.
    """
    shared: list[Any] = [] if has_shards(model) else list(all_tensors(model).values())
    for _, module in all_modules(model):
        shared += [value for name, value in vars(module).items() if name.startswith(_OURS)]
    copied = copy_of(model, {id(one): one for one in shared})
    uninstall(copied)
    return copied


def _loads(
    wiring: Wiring, insertions: Iterable[Insertion], modules: Mapping[str, nn.Module]
) -> dict[str, _Load]:
    first_names: dict[int, str] = {}
    for name, one in modules.items():
        first_names.setdefault(id(one), name)
    chains: dict[Site, list[nn.Module]] = {}
    for insertion in insertions:
        site = insertion.site
        if isinstance(site, WeightSite):
            # a module registered under two names is one reader
            site = replace(site, module=first_names[id(modules[site.module])])
            if any(one is insertion.hook for one in chains.get(site, ())):
                continue
        chains.setdefault(site, []).append(insertion.hook)
    loads: dict[str, _Load] = defaultdict(_Load)
    for site, hooks in chains.items():
        chain = HookChain(str(site), tuple(hooks))
        if isinstance(site, WeightSite):
            loads[site.module].weights[site.name] = chain
            continue
        module = wiring.places[site.address].module
        side = loads[module].before if isinstance(site, PreSite) else loads[module].after
        side[site.address][site.port] = chain
    return dict(loads)


def _plan(name: str, load: _Load, wiring: Wiring, functions: Mapping[str, str]) -> CallPlan | None:
    addresses = load.addresses
    if not addresses:
        return None
    visits = wiring.calls.get(name, 1)
    is_steady = visits_of(name) not in wiring.varying
    places = [wiring.places[address] for address in addresses]
    if all(_at_boundary(place, load, one) for place, one in zip(places, addresses, strict=True)):
        boundary = dict(
            _boundary(place, load, one) for place, one in zip(places, addresses, strict=True)
        )
        return CallPlan(name, boundary=boundary, visits=visits, is_steady=is_steady)
    calls = {
        (functions[one], *place.call): CallHooks(
            dict(load.before[one]), dict(load.after[one]), place.reads_floats, place.rank
        )
        for place, one in zip(places, addresses, strict=True)
    }
    hooked = {function for function, _, _ in calls}
    traced = {(function, site): 1 for function, site, _ in calls}
    traced |= {
        (function, site): count
        for (module, function, site), count in wiring.counts.items()
        if module == name and function in hooked
    }
    on_floats = {function: wiring.on_floats.get((name, function), 1) for function in hooked}
    varying = frozenset(call for call in traced if (name, *call) in wiring.varying)
    return CallPlan(
        name,
        functions=calls,
        traced=traced,
        on_floats=on_floats,
        varying=varying,
        visits=visits,
        is_steady=is_steady,
    )


def _number_in_parts(
    model: nn.Module, modules: Mapping[str, nn.Module], repeated: Sequence[CallPlan]
) -> None:
    """Let the parts of `model` number the calls of `repeated` if they are called on their own."""
    for part in _around(modules, [modules[one.module] for one in repeated]):
        own = set(part.modules())
        if part is not model:
            part.__dict__[NUMBERED] = tuple(one for one in repeated if modules[one.module] in own)


def _at_boundary(place: Place, load: _Load, address: str) -> bool:
    if place.boundary is None or (load.after[address] and not place.boundary.is_result):
        return False
    return all(port in place.boundary.arguments for port in load.before[address])


def _boundary(place: Place, load: _Load, address: str) -> tuple[int, BoundaryHooks]:
    """Return the number of a module's call, and the hooks around it."""
    assert place.boundary is not None  # noqa: S101 (checked before)
    arguments = place.boundary.arguments
    before = {arguments[port]: chain for port, chain in load.before[address].items()}
    return place.boundary.visit, BoundaryHooks(before, load.after[address].get(0))


def _equip(module: nn.Module, weights: dict[str, HookChain], plan: CallPlan | None) -> None:
    if plan is not None and forward_method(module) is None:
        raise TracingError(
            f"The {type(module).__name__} '{plan.module}' has a forward of its own set on the "
            "instance, which hides the hooks on its activations. Make it a method of its class."
        )
    chains = {weight_attribute(name): chain for name, chain in weights.items()}
    around = Around.NOTHING
    if plan is not None:
        direct = plan.always
        around = Around.PLAN if direct is None else direct.around
        if direct is None or around is Around.PLAN:
            module.__dict__[CALLS] = plan
        else:
            chains.update(direct.chains)
    carry(module, chains)
    entries = _entries(module) if weights else ()
    _change(module, weights=frozenset(weights), around=around, entries=entries)


def _change(module: nn.Module, **parts: Any) -> None:
    plain = ClassSpec(original_class(module), HookedModule)
    spec = spec_of(module) if isinstance(module, HookedModule) else plain
    method = forward_method(module) or "forward"
    change_class(module, replace(spec, method=method, **parts))


def _around(modules: Mapping[str, nn.Module], hooked: Iterable[nn.Module]) -> list[nn.Module]:
    """Return the modules that contain one of `hooked` under any name."""
    sought = set(map(id, hooked))
    names = [name for name, one in modules.items() if id(one) in sought]
    above = {
        ".".join(parts[:depth])
        for parts in (name.split(".") for name in names if name)
        for depth in range(len(parts))
    }
    return [modules[name] for name in sorted(above)]


def _entries(module: nn.Module) -> tuple[str, ...]:
    """Return the methods through which `module` is called; empty for a list of modules."""
    if type(module).forward is nn.Module.forward:
        return ()
    # weight norm and torch's pruning read weights before the forward of the class
    early = "forward" in module.__dict__ or module._forward_pre_hooks  # noqa: SLF001 (no public way)
    return ("__call__", "forward") if early else ("forward",)


def _strip_attributes(module: nn.Module) -> None:
    drop(module)
    for attribute in (CALLS, CALL_HOOKS, NUMBERED):
        module.__dict__.pop(attribute, None)
    module._forward_pre_hooks.pop(_VISIBLE, None)  # type: ignore[call-overload]  # noqa: SLF001 (our own key)


def _keep_visible(modules: Mapping[str, nn.Module], plans: Iterable[str]) -> None:
    fused = (nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.MultiheadAttention)
    for name in plans:
        parts = name.split(".")
        above = [modules[".".join(parts[:depth])] for depth in range(len(parts))]
        if any(isinstance(one, fused) for one in above):
            modules[name]._forward_pre_hooks[_VISIBLE] = _look  # type: ignore[index]  # noqa: SLF001 (our own key)
        for one in above:
            if isinstance(one, nn.TransformerEncoder) and _NESTED not in one.__dict__:
                # only the fused path accepts nested tensors of sequences of several lengths
                one.__dict__[_NESTED] = one.use_nested_tensor
                one.use_nested_tensor = False


def _look(module: nn.Module, args: Any) -> None:
    """Do nothing; torch skips its fused path for modules with a forward pre-hook."""
    del module, args
