"""Wrap and unwrap models."""

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
from nncfx.storage.models.module_walk import named_modules
from nncfx.storage.models.sharded_models import gathered
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.module_check import require_module
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
    """Trace `model` once and return `model` itself, now also an `NNCFNetwork`.

    Its class becomes a subclass of `NNCFNetwork` and of its own class. Its forward, parameters
    and `state_dict` do not change, and everything that nncfx adds is in `model.nncf`. Without
    hooks the forward is the original one.

    Args:
        model: Any module.
        example_inputs: A tensor, a tuple of positional inputs, a mapping of keyword inputs, or
            `((positional, ...), {keyword: ...})` for both.
        further_inputs: More inputs, for a model whose forward branches on them. The graph holds
            the operations of all traces; an operation in several is as in the first.

    Raises:
        ArgumentError: `model` is not a module, or `example_inputs` are not in an accepted form.
        TracingError: the model, or a part of it, is already wrapped (also as part of another
            model), compiled, scripted, sharded or offloaded; it rejects the inputs; it returns no
            tensor; its class cannot be subclassed. The model is then unchanged.

    A module without weights that is used in several places, such as the one activation of all
    Ultralytics networks, may belong to other models too, so it is replaced by a copy.

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
    modules = named_modules(model)
    require_whole(model, "wrapped", modules=modules)
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
    """Warn about weights that a forward writes to before it multiplies by them."""
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
    """Raise an error if `module`, named `name` in `model`, cannot be wrapped."""
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
    # compare by name, because importing torch._dynamo takes a second
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
    """Replace modules without weights that other models may share by copies.

    Hooks are attached to modules, so one model's hooks would run in every model that shares them.
    """
    names = Counter(id(one) for _, one in modules)
    own: dict[int, nn.Module] = {}
    for _, module in modules:
        for key, part in module._modules.items():  # noqa: SLF001 (a class may override its setattr)
            # rarely true and cheap, so checked before the weights
            is_shared = names[id(part)] > 1 or isinstance(part, HookedModule)
            if part is not None and is_shared and _is_stateless(part):
                module._modules[key] = own.setdefault(id(part), _stateless_copy(part))  # noqa: SLF001 (as above)


def _is_stateless(module: nn.Module) -> bool:
    tables = (module._modules, module._parameters, module._buffers)  # noqa: SLF001 (as torch's own walk)
    return all(one is None for table in tables for one in table.values())


def _stateless_copy(module: nn.Module) -> nn.Module:
    """Return a copy of `module` without our hooks that shares none of its tables."""
    copied: nn.Module = object.__new__(type(module))
    own = {name: copy(one) if isinstance(one, dict) else one for name, one in vars(module).items()}
    object.__setattr__(copied, "__dict__", own)
    uninstall(copied)
    return copied


def unwrap(model: nn.Module) -> nn.Module:
    """Undo `wrap` and return `model` itself, with the parameters it has now.

    The hooks are removed; to keep their effect on the weights, use `nncfx.strip`.

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
    """Return a second wrapped model that shares the weights of `model` and has only `hooks`.

    Use it for reading only: writing to the weights of one model changes the other.

    Args:
        model: stays unchanged.
        hooks: all or some of the hooks of `model`.
    """
    other = cast("NNCFNetwork", unhooked(model))
    known: WrapState = vars(model)[STATE]
    other.__dict__[STORE] = HookStore()
    other.__dict__[STATE] = replace(known, registered={}, committed=(), next_sequence=0)
    other.nncf.register(hooks)
    other.nncf.commit()
    return other
