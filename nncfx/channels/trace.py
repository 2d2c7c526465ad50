"""Find the channels of a model that can only be removed together."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Final

import torch
from torch import nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from typing_extensions import override

from nncfx.channels.ids import sequence, varying_axes
from nncfx.channels.masked_norms import AVERAGES
from nncfx.channels.rules.calls import Rule, channel_rule, place_of, unknown
from nncfx.channels.rules.constants import CONSTRUCTORS, constant
from nncfx.channels.state import ChannelState
from nncfx.errors import GraphError, TracingError
from nncfx.graph.channels import Channels
from nncfx.graph.union_find import Ids
from nncfx.operators import functions_of, operator_of
from nncfx.storage.models.module_walk import all_modules, all_tensors, first_names
from nncfx.tracing.calls.function_names import spelling
from nncfx.tracing.calls.inputs import ExampleInputs
from nncfx.tracing.calls.module_stack import ModuleStack
from nncfx.tracing.calls.symbolic_sizes import Countable, NamedInteger, named_integers, named_size
from nncfx.tracing.calls.tensors import is_transformed
from nncfx.tracing.hooks.dynamic_class import HookedModule
from nncfx.tracing.hooks.installation import unhooked
from nncfx.tracing.record.function_mode import (
    CallMode,
    Modules,
    SizeObserver,
    TracedCall,
    by_shapes,
    forward,
)
from nncfx.tracing.record.shape_only_execution import Shortcut
from nncfx.tracing.record.unreached_modules import branches_on_training, passed_around, unreached

_LOGGER = logging.getLogger(__name__)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})

CALLS_OF_A_PATH: Final = 1_000_000
"""Offset of call numbers between forwards, above the averaging calls of any one forward."""

_OF_NUMBERS: Final = functions_of("add", "sub", "mul", "div", "pow")
_COMPUTED: Final = (
    "after '{place}' the code computes with their number, as in x / x.shape[1] ** 0.5, which "
    "would change; let the module keep the result (self.scale = ...)"
)
_UNSEEN: Final = (
    "'{place}' reads nothing of the example inputs, like an expert that no token reaches, so "
    "its channels cannot be followed. Give inputs that reach every layer."
)
_MISSED: Final = (
    "'{name}' could read them, and no example reaches it: give one that does in further_inputs, "
    "or take it out of the model if nothing ever does"
)

FIXABLE: Final = ("the code computes with their number", "no example reaches it")
"""Parts of reasons that a change of the model's code, or more examples, could remove."""


class ChannelObserver(SizeObserver):
    """Follows channels through a trace.

    Every activation gets a grid of channel ids. Functions that move elements are executed again
    on the ids; elementwise functions tie the ids of their operands; convolutions and linear layers
    read ids and create new ones; functions that are not followed fix the channels they read.

    Attributes:
        state: the state of all tensors.
        read: the parameters and buffers that calls have read, by their first names.
    """

    def __init__(self, fixed: Mapping[str, str] = _NOTHING, *, living: bool = False) -> None:
        """Create an observer; `fixed` has reasons why the channels that operations read stay."""
        self.state = ChannelState(living=living)
        self.read: set[str] = set()
        self._fixed = fixed

    def begin(self, path: int) -> None:
        """Begin forward number `path`."""
        self.state.calls = path * CALLS_OF_A_PATH

    def keep(self, tensor: torch.Tensor, reason: str) -> None:
        """Fix the channels of a tensor, if it has any."""
        if self.state.is_known(tensor):
            self.state.fix_tensor(tensor, reason)

    def on_input(self, tensor: torch.Tensor) -> None:
        """Fix the channels of an input of the model."""
        self.state.set_fixed(tensor, "an input of the model")

    def on_call(self, call: TracedCall) -> None:
        """Follow the channels through one call."""
        self.state.names = call.parameter_names
        self.state.ledger.place = call.address
        self.state.calls += call.func in AVERAGES
        name = spelling(call.func)
        if name in CONSTRUCTORS:
            constant(self.state, call)
            return
        operands = call.operands
        names = call.parameter_names
        self.read.update(names[id(one)] for one in operands if id(one) in names)
        self.state.read(operands)
        known = [one for one in operands if self.state.is_known(one)]
        if not known or (is_transformed() and self._is_constant(call, known)):
            return
        reason = self._fixed.get(place_of(call))
        if reason is not None:
            for tensor in operands:
                self.state.fix_tensor(tensor, reason)
        rule = _rule_of(name, call, known)
        rule(self.state, call)
        for one in (*call.args, *call.kwargs.values()):
            if isinstance(one, Countable) and name in _OF_NUMBERS:
                one.used()

    def _is_constant(self, call: TracedCall, known: Sequence[torch.Tensor]) -> bool:
        """Return whether a call by a function of torch.func reads only channels that stay.

        So do masks of attention, which transformers makes from the mask of the tokens.

        Raises:
            GraphError: it reads other channels, or parameters.
        """
        with temporarily_clear_interpreter_stack():
            if all(map(self.state.is_fixed, known)):
                return True
        raise GraphError(
            f"'{place_of(call)}' is called by a function of torch.func, such as vmap or "
            "grad, where channels are not followed. Take derivatives with "
            "torch.autograd.grad, or compress the modules that it calls by themselves."
        )

    @override
    def on_shape(self, tensor: torch.Tensor) -> torch.Size:
        """Return the shape, whose entry for the axis of channels remembers them."""
        shape, grid = tensor.shape, self.state.grid(tensor)
        moving = () if grid is None else varying_axes(grid)
        if grid is None or len(moving) != 1:
            return shape
        ids = sequence(grid, moving[0])
        return shape if ids is None else named_size(shape, moving[0], ids, self._computed)

    def _computed(self, ids: Ids) -> None:
        self.state.ledger.fix(ids, _COMPUTED.format(place=self.state.ledger.place))

    def counted(self, integer: NamedInteger) -> None:
        """Record that code computes with an integer of a module."""
        reason = _COMPUTED.format(place=self.state.ledger.place)
        self.state.ledger.number(integer, reason)

    def on_output(self, tensor: torch.Tensor) -> None:
        """Fix the channels of an output of the model."""
        self.state.ledger.place = ""
        self.state.read([tensor])
        self.state.fix_tensor(tensor, "an output of the model")

    def channels(self, model: nn.Module) -> Channels:
        """Return the channels found in the trace of `model`."""
        self.state.settle()
        buffers = all_tensors(model, "_buffers")
        return self.state.ledger.channels(buffers)


def _rule_of(name: str, call: TracedCall, known: Sequence[torch.Tensor]) -> Rule:
    """Return the channel rule for a call of the function `name`.

    Args:
        name: the function's name in addresses.
        call: the call.
        known: the operands that have channels.

    Raises:
        TracingError: a layer reads an empty tensor, which only other functions may do.
    """
    rule = channel_rule.find(name) or unknown
    if all(one.numel() for one in known):
        return rule
    # a layer of no width has a weight without entries
    weights = [one for one in call.operands if id(one) in call.parameter_names]
    if operator_of(name).work == "contraction" and all(one.numel() for one in weights):
        raise TracingError(_UNSEEN.format(place=place_of(call)))
    return rule if any(one.numel() for one in known) else unknown


def analyze_channels(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    further_inputs: Sequence[ExampleInputs] = (),
    fixed: Mapping[str, str] = _NOTHING,
    living_norms: bool = False,
) -> Channels:
    """Return the groups of channels of `model` that can only be removed together.

    The model runs once in evaluation mode, and also in training mode if that may take another
    path; it is not changed. Channels that the analysis cannot follow exactly are fixed, with a
    reason that names the operation, and so are channels that a module which no example reaches
    could read.

    Args:
        model: any module; hooks of a wrapped model are ignored.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        further_inputs: more inputs, for a forward that branches on its inputs.
        fixed: reasons why the channels that an operation reads must stay, by address.
        living_norms: whether layer, RMS and group norms and means over channels are assumed to
            cover remaining channels only, so these can be removed. Otherwise they fix channels.

    Raises:
        ArgumentError: inputs have none of these forms.
        TracingError: the model rejects the inputs or returns no tensor.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> print(analyze_channels(model, torch.zeros(1, 3)))
    channels  groups  producers  followers  consumers  removable
    0         4       2          0          1          yes
    2         2       2          0          0          no: an output of the model
    """
    if any(isinstance(module, HookedModule) for _, module in all_modules(model)):
        model = unhooked(model)
    paths = [(one, False) for one in (example_inputs, *further_inputs)]
    trained = [*paths, *((one, True) for one, _ in paths)]
    follow = partial(_followed, model, fixed=fixed, living=living_norms)
    observer = None if branches_on_training(model) else follow(paths)
    if observer is None or unreached(model, observer.read):
        try:
            observer, paths = follow(trained), trained
        except TracingError:  # for instance norms that reject a batch of one
            _LOGGER.debug("%s does not run in training mode", type(model).__name__)
    observer = observer or follow(paths)
    missed = unreached(model, observer.read)
    # the first of a caller's modules gives the reason; reversed, because the last entry wins
    widths = _widths(model, observer) if missed else frozenset()
    parameters = all_tensors(model, "_parameters")
    found = (
        (caller, name)
        for name, caller in reversed(missed.items())
        if caller is not None
        # a single parameter can only meet axes of its width
        and (name not in parameters or not widths.isdisjoint(parameters[name].shape))
    )
    if callers := {caller: _MISSED.format(name=name) for caller, name in found}:
        observer = follow(paths, callers)  # again, fixing what these modules could read
    return replace(observer.channels(model), unreached=tuple(missed))


def _widths(model: nn.Module, observer: ChannelObserver) -> frozenset[int]:
    """Return the sizes of tensor axes that could lose channels."""
    tensors = all_tensors(model)
    members = (one for each in observer.channels(model).prunable for one in each.members)
    return frozenset(tensors[one.parameter].shape[one.axis] for one in members) - {1}


def _followed(
    model: nn.Module,
    paths: Sequence[tuple[ExampleInputs, bool]],
    callers: Mapping[str, str] = _NOTHING,
    *,
    fixed: Mapping[str, str],
    living: bool,
) -> ChannelObserver:
    """Return an observer after a forward for each of `paths` (inputs, training mode).

    Tensors that the code of `callers` handles keep their channels, for the given reasons.
    """

    def attempt(shortcut: Shortcut | None, modules: Modules) -> ChannelObserver:
        observer = ChannelObserver(fixed, living=living)
        with named_integers(model, observer.counted), passed_around(model, callers, observer.keep):
            for number, (inputs, train) in enumerate(paths):
                observer.begin(number)
                quick = shortcut and Shortcut(shortcut.without_values)
                names = first_names(modules)
                mode = CallMode(ModuleStack(model, modules), names, [observer], quick)
                forward(model, inputs, mode, train=train)
        return observer

    return by_shapes(model, paths[0][0], attempt)
