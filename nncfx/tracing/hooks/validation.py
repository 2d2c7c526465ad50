"""Validate insertions before anything in the model changes."""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import nn

from nncfx.errors import ArgumentError, GraphError, did_you_mean
from nncfx.graph import NNCFGraph, Operation
from nncfx.tracing.calls.module_stack import Boundary, Wiring
from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.hooks.sites import Insertion, PostSite, PreSite, WeightSite
from nncfx.tracing.hooks.spelled_functions import is_known_function
from nncfx.tracing.hooks.store import HookStore


def check_insertion(
    insertion: Insertion, modules: Mapping[str, nn.Module], graph: NNCFGraph, wiring: Wiring
) -> None:
    """Check that `insertion` can be committed.

    Raises:
        ArgumentError: it is not an insertion, its site, priority or hook has a wrong type, or the
            algorithm's name cannot be part of a key.
        GraphError: its address, port, module or parameter does not exist, or cannot be hooked.
    """
    _check_types(insertion)
    if not isinstance(insertion.hook, nn.Module):
        raise ArgumentError(
            f"The hook at '{insertion.site}' is a {type(insertion.hook).__name__}; a hook is an "
            "nn.Module, so that it is saved, moved and trained with the model."
        )
    check_algorithm(insertion.algorithm)
    site = insertion.site
    if isinstance(site, WeightSite):
        _check_weight(site, modules, wiring)
    else:
        _check_activation(site, graph.find(site.address), wiring)


def check_algorithm(name: str) -> None:
    """Check that the algorithm name `name` can name a module.

    Raises:
        ArgumentError: it cannot.
    """
    if not name or set(".#") & set(name) or hasattr(HookStore(), name):
        raise ArgumentError(
            f"'{name}' cannot name an algorithm: the name is part of a state_dict key. Use a "
            "name that is not empty, has no '.' and '#', and is not an attribute of nn.Module."
        )


def check_places(insertions: Iterable[Insertion], model: nn.Module) -> None:
    """Check that modules with hooks on weights have the same names as when hooks were inserted.

    Raises:
        GraphError: a module has another name; the message names it.
    """
    names = {name for name, _ in model.named_modules(remove_duplicate=False)}
    sites = [one.site for one in insertions if isinstance(one.site, WeightSite)]
    for site in sites:
        if site.module not in names:
            raise GraphError(
                f"The module '{site.module}', whose '{site.name}' has a hook, has a new name: "
                "something was put around it, or around a module that holds it, such as torch's "
                "checkpoint_wrapper. Put that there before create_compressed_model."
            )


def _check_types(insertion: Any) -> None:
    """Check the types of `insertion` and its parts, except the hook."""
    if not isinstance(insertion, Insertion):
        raise ArgumentError(
            f"A {type(insertion).__name__} cannot be registered. Register insertions: "
            "Insertion(site, hook, priority, algorithm)."
        )
    if not isinstance(insertion.site, WeightSite | PreSite | PostSite):
        raise ArgumentError(
            f"{insertion.site!r} is a {type(insertion.site).__name__}, not a site. Write "
            "PostSite(address), PreSite(address, port) or WeightSite.of(parameter)."
        )
    if not isinstance(insertion.priority, int):
        raise ArgumentError(
            f"The priority of the hook at '{insertion.site}' is {insertion.priority!r}; hooks at "
            "a site are sorted by priority, an integer, smaller first. See tracing.Priority."
        )


def _check_weight(site: WeightSite, modules: Mapping[str, nn.Module], wiring: Wiring) -> None:
    module = modules.get(site.module)
    if module is None:
        raise GraphError(
            f"No module '{site.module}'.{did_you_mean(site.module, modules)} "
            "A weight site names a module as model.named_modules() does."
        )
    names = own_tensors(module)
    if site.name not in names:
        raise GraphError(
            f"The {type(module).__name__} '{site.module}' has no parameter or buffer "
            f"'{site.name}'.{did_you_mean(site.name, names)} "
            f"It has: {', '.join(names) or 'none'}."
        )
    if str(site) in wiring.folded:
        raise GraphError(
            f"The forward sets the data of '{site}', as networks do that fold their branches "
            "into one weight or keep it within bounds, and a hook would lose what it writes. "
            "If only the first forward does so, as where a layer sets itself up, run the model "
            "once before it is wrapped or loaded; else hook the weights that it is made of, or "
            "leave its layer out with ignored_scopes."
        )
    if str(site) in wiring.bypassed:
        raise GraphError(
            f"The forward does not read '{site}' as an attribute of its module, but takes it out "
            "of a list or a table such as named_parameters(), so a hook there would never be "
            "called. Read it as an attribute, or leave its layer out with ignored_scopes."
        )


def _check_activation(site: PreSite | PostSite, operation: Operation, wiring: Wiring) -> None:
    side, count = (
        ("input", len(operation.inputs))
        if isinstance(site, PreSite)
        else ("output", len(operation.outputs))
    )
    if not 0 <= site.port < count:
        raise GraphError(
            f"'{site.address}' has no {side} port {site.port}; it has {count}, counted from 0."
        )
    if operation.function == "__setitem__" and isinstance(site, PostSite):
        raise GraphError(
            f"'{site.address}' assigns to elements of its first input and returns nothing that a "
            "hook could replace. Hook the operation that reads the tensor next."
        )
    if operation.is_assignment and isinstance(site, PreSite) and not site.port:
        raise GraphError(
            f"'{site.address}' changes its first input in place, and what reads it next would not "
            "read what a hook puts there. Hook the operation that reads the tensor next."
        )
    if is_known_function(operation.function):
        return
    if not _is_at_boundary(site, wiring.places[site.address].boundary):
        fix = "Call it in a module of its own."
        if isinstance(site, PreSite) and site.port in operation.parameters:
            fix = f"Hook the weight: WeightSite.of('{operation.parameters[site.port]}')."
        raise GraphError(
            f"'{site.address}' calls '{operation.function}', which is not a function of torch by "
            f"that name, and cannot be hooked. {fix}"
        )


def _is_at_boundary(site: PreSite | PostSite, boundary: Boundary | None) -> bool:
    """Return whether a hook around the module's forward gets the tensor at `site`."""
    if boundary is None:
        return False
    return boundary.is_result if isinstance(site, PostSite) else site.port in boundary.arguments
