"""Wrap a model and unwrap it again: `wrap`, `unwrap`."""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from itertools import chain
from typing import cast

import torch
from torch import nn

from nncfx.errors import TracingError
from nncfx.network.network import STATE, NNCFNetwork, WrapState
from nncfx.operators import operator_of
from nncfx.storage.models.sharded_models import gathered
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.module_check import require_module
from nncfx.tracing.calls.module_walk import named_modules
from nncfx.tracing.hooks.dynamic_class import ClassSpec, HookedModule, change_class, restore_class
from nncfx.tracing.hooks.installation import unhooked, uninstall
from nncfx.tracing.hooks.sites import Insertion
from nncfx.tracing.hooks.store import STORE, HookStore
from nncfx.tracing.record.constant_operands import constant_operands
from nncfx.tracing.record.merging import merged_graphs, merged_wirings
from nncfx.tracing.record.tracer import Trace, traces_of_shapes

_LOGGER = logging.getLogger(__name__)


def wrap(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    further_inputs: Sequence[ExampleInputs] = (),
) -> NNCFNetwork:
    """Return `model` itself, now also an `NNCFNetwork`, after tracing it once.

    Its class becomes a subclass of `NNCFNetwork` and of its own class; its forward, parameters
    and `state_dict` stay as they are, and everything of ours is behind `model.nncf`. Without hooks
    the forward is the original one.

    Args:
        model: Any module.
        example_inputs: A tensor, a tuple of positional inputs, a mapping of keyword inputs, or
            `((positional, ...), {keyword: ...})` for both.
        further_inputs: More of them, for a model whose forward branches on its inputs. The graph
            holds the operations of all; what several have is as in the first.

    Raises:
        ArgumentError: `model` is no module, or `example_inputs` are not in an accepted form.
        TracingError: the model, or a part of it, is wrapped already, in another model too, or
            compiled, scripted, sharded or offloaded; it refuses the inputs; it returns no tensor;
            its class cannot be extended. The model is left as it was.

    Modules without weights that stand in several places, such as the one activation of all of
    Ultralytics' networks, may stand in other models as well: `model` gets copies of its own.

    >>> import torch
    >>> model = wrap(nn.Sequential(nn.Linear(2, 3)), torch.zeros(1, 2))
    >>> isinstance(model, NNCFNetwork), isinstance(model, nn.Sequential)
    (True, True)
    """
    require_module(model, "wrap")
    with gathered(model):
        return _wrapped(model, example_inputs, further_inputs)


def _wrapped(
    model: nn.Module, example_inputs: ExampleInputs, further_inputs: Sequence[ExampleInputs]
) -> NNCFNetwork:
    require_whole(model, "wrapped")
    modules = named_modules(model)
    for name, module in modules:
        _check_wrappable(model, name, module)
    if hasattr(model, "nncf"):
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: it has an attribute 'nncf', and wrapping "
            "adds one of that name. Give its own another name."
        )
    _own_stateless(modules)
    traces = traces_of_shapes(model, (example_inputs, *further_inputs))
    _warn_written(model, traces)
    graph = merged_graphs([one.graph for one in traces]) if further_inputs else traces[0].graph
    wiring = merged_wirings([one.wiring for one in traces]) if further_inputs else traces[0].wiring
    try:
        change_class(model, ClassSpec(type(model), NNCFNetwork))
    except TypeError as error:
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: its class allows no subclass ({error}). "
            "Wrap the Python module that it was made from."
        ) from error
    model.__dict__[STORE] = HookStore()
    model.__dict__[STATE] = WrapState(graph, wiring, example_inputs, tuple(further_inputs))
    return cast("NNCFNetwork", model)


def _warn_written(model: nn.Module, traces: Sequence[Trace]) -> None:
    """Log the weights that a forward writes to before it multiplies by them."""
    written = sorted(
        {
            name
            for one in traces
            if one.wiring.folded
            for address, made_of in constant_operands(one.graph).items()
            if operator_of(one.graph.find(address).function).has_weight
            for name in one.wiring.folded.intersection(chain(*made_of.values()))
        }
    )
    if written:
        _LOGGER.warning(
            "The forward of %s writes to %s, which a hook would lose: algorithms leave such "
            "weights as they are. If the model has an option not to write to them, set it "
            "before the model is wrapped.",
            type(model).__name__,
            ", ".join(f"'{one}'" for one in written),
        )


def _check_wrappable(model: nn.Module, name: str, module: nn.Module) -> None:
    """Return if `module`, the part of `model` of that name, can be wrapped with it."""
    where = f"its module '{name}' is" if name else "it is"
    if isinstance(module, NNCFNetwork):
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: {where} wrapped already. "
            "Use model.nncf of the wrapped one, or nncfx.unwrap it first."
        )
    if isinstance(module, HookedModule) and not _is_stateless(module):
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: {where} part of another wrapped model too "
            "and carries its hooks. Wrap one model that holds both, or copy.deepcopy this one "
            "before either is wrapped."
        )
    # by the module's name, since importing torch._dynamo takes a second
    is_made = type(module).__module__.startswith("torch._dynamo.eval_frame")
    if is_made or module._compiled_call_impl is not None:  # noqa: SLF001 (what nn.Module.compile sets)
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: {where} compiled, and what it calls is no "
            "longer seen. Wrap the model first, and compile what nncfx.wrap returns."
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise TracingError(
            f"{type(model).__name__} cannot be wrapped: {where} TorchScript, whose calls are not "
            "seen. Wrap the Python module that it was made from."
        )


def _own_stateless(modules: Sequence[tuple[str, nn.Module]]) -> None:
    """Replace those of a model's `modules` without weights that may stand in others by copies.

    Hooks stand on modules: one model's would run in all that have the module.
    """
    names = Counter(id(one) for _, one in modules)
    own: dict[int, nn.Module] = {}
    for _, module in modules:
        for key, part in module._modules.items():  # noqa: SLF001 (a class may override its setattr)
            # few are either, which is told sooner than that they have no weights
            is_shared = names[id(part)] > 1 or isinstance(part, HookedModule)
            if part is not None and is_shared and _is_stateless(part):
                module._modules[key] = own.setdefault(id(part), _stateless_copy(part))  # noqa: SLF001 (as above)


def _is_stateless(module: nn.Module) -> bool:
    tables = (module._modules, module._parameters, module._buffers)  # noqa: SLF001 (as torch's own walk)
    return all(one is None for table in tables for one in table.values())


def _stateless_copy(module: nn.Module) -> nn.Module:
    """Return a module that does what `module` does without our hooks, and shares no table."""
    copied: nn.Module = object.__new__(type(module))
    own = {name: copy(one) if isinstance(one, dict) else one for name, one in vars(module).items()}
    object.__setattr__(copied, "__dict__", own)
    uninstall(copied)
    return copied


def unwrap(model: nn.Module) -> nn.Module:
    """Return `model` itself as it was before `wrap`, with the parameters it has now.

    The hooks are gone; to keep what they do to the weights, use `nncfx.strip`.

    Raises:
        TracingError: `model` is not wrapped.
    """
    if not isinstance(model, NNCFNetwork):
        raise TracingError(
            f"{type(model).__name__} is not wrapped, so there is nothing to unwrap. "
            "Pass the model that nncfx.wrap returned."
        )
    with gathered(model):
        uninstall(model)
        for attribute in (STORE, STATE):
            del model.__dict__[attribute]
        restore_class(model)
    return model


def view(model: NNCFNetwork, hooks: Iterable[Insertion]) -> NNCFNetwork:
    """Return another wrapped model of the very weights of `model`, with `hooks` in place alone.

    For information only: what writes to the weights of the one writes to those of the other.

    Args:
        model: left as it is.
        hooks: such as stand in it, of which some may be left out.
    """
    other = cast("NNCFNetwork", unhooked(model))
    known: WrapState = vars(model)[STATE]
    other.__dict__[STORE] = HookStore()
    other.__dict__[STATE] = replace(known, registered={}, committed=(), next_sequence=0)
    other.nncf.register(hooks)
    other.nncf.commit()
    return other
