"""Find out which channels of a model can only be removed together: `analyze_channels`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import torch
from torch import nn
from typing_extensions import override

from nncfx.graph.channels import Channels
from nncfx.tracing.channel_calls import place_of, unknown
from nncfx.tracing.channel_constants import CONSTRUCTORS, constant
from nncfx.tracing.channel_ids import sequence, varying_axes
from nncfx.tracing.channel_rules import RULES
from nncfx.tracing.channel_state import ChannelState
from nncfx.tracing.dynamic_class import HookedModule
from nncfx.tracing.inputs import ExampleInputs
from nncfx.tracing.installation import uninstall
from nncfx.tracing.living import AVERAGES
from nncfx.tracing.model_copy import copy_of
from nncfx.tracing.module_walk import all_modules, all_tensors
from nncfx.tracing.named_integers import named_integers, named_size
from nncfx.tracing.spelling import spelling
from nncfx.tracing.watching import SizeObserver, TracedCall, watch_shapes

__all__ = ["ChannelObserver", "analyze_channels"]

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class ChannelObserver(SizeObserver):
    """Follows channels through a trace.

    Every activation gets a grid of channel ids. Functions that move elements are executed again
    on the ids; functions of elements tie the ids of their operands; convolutions and linear layers
    read ids and create new ones; whatever is not followed fixes the channels that it reads.
    """

    def __init__(self, fixed: Mapping[str, str] = _NOTHING, *, living: bool = False) -> None:
        """Follow channels; those that the operations `fixed` read must stay, with the reasons."""
        self.state = ChannelState(living=living)
        self._fixed = fixed

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
        self.state.read(operands)
        if not any(self.state.is_known(tensor) for tensor in operands):
            return
        reason = self._fixed.get(place_of(call))
        if reason is not None:
            for tensor in operands:
                self.state.fix_tensor(tensor, reason)
        rule = RULES.get(name, unknown)
        rule(self.state, call)

    @override
    def on_shape(self, tensor: torch.Tensor) -> torch.Size:
        """Let the width along which channels lie remember them."""
        shape, grid = tensor.shape, self.state.grid(tensor)
        moving = () if grid is None else varying_axes(grid)
        if grid is None or len(moving) != 1:
            return shape
        ids = sequence(grid, moving[0])
        return shape if ids is None else named_size(shape, moving[0], ids)

    def on_output(self, tensor: torch.Tensor) -> None:
        """Fix the channels of an output of the model."""
        self.state.ledger.place = ""
        self.state.read([tensor])
        self.state.fix_tensor(tensor, "an output of the model")

    def channels(self, model: nn.Module) -> Channels:
        """Return what the trace of `model` found."""
        self.state.settle()
        buffers = all_tensors(model, "_buffers")
        return self.state.ledger.channels(buffers)


def analyze_channels(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    fixed: Mapping[str, str] = _NOTHING,
    living_norms: bool = False,
) -> Channels:
    """Return the groups of channels of `model` that can only be removed together.

    The model runs once, in evaluation mode, and is left as it was. Whatever the analysis cannot
    follow exactly is fixed, and the reason says which operation fixed it.

    Args:
        model: any module; of a wrapped one, hooks are left out.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        fixed: address of an operation to the reason why the channels that it reads must stay.
        living_norms: whether layer, RMS and group norms and means over channels are taken to see
            living channels only, so that these may go. Else they fix them.

    Raises:
        ArgumentError: `example_inputs` is none of these.
        TracingError: the model refuses the inputs or returns no tensor.

    >>> model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> print(analyze_channels(model, torch.zeros(1, 3)))
    channels  groups  producers  followers  consumers  removable
    0         4       2          0          1          yes
    2         2       2          0          0          no: an output of the model
    """
    if any(isinstance(module, HookedModule) for _, module in all_modules(model)):
        model = copy_of(model)
        uninstall(model)
    observers: list[ChannelObserver] = []

    def observe() -> list[ChannelObserver]:
        observers[:] = [ChannelObserver(fixed, living=living_norms)]
        return observers

    with named_integers(model):
        watch_shapes(model, example_inputs, observe)
    return observers[-1].channels(model)
