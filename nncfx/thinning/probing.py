"""Find out by trial which channels can go: `prunable_channels`."""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np
from torch import nn

from nncfx.graph.channels import Channels
from nncfx.thinning.removal import removed
from nncfx.thinning.selection import Selection
from nncfx.thinning.surgery import sized_on_the_way
from nncfx.thinning.verification import failing_operation
from nncfx.tracing import ExampleInputs, analyze_channels, trace

__all__ = ["prunable_channels"]

_TRIALS: Final = 20
_TOO_MANY: Final = f"the code holds widths at more than {_TRIALS} places"
_PARTS: Final = (3, 5, 7, 4)
_REASON: Final = "'{address}' fails without some of them: the code around it holds a width"


def prunable_channels(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    living_norms: bool = False,
) -> Channels:
    """Return the groups of channels of `model`, those fixed that its code does not let go.

    Code may hold a width that no tensor and no integer of a module gives. So a part of every set
    is removed for trial. An operation that then fails fixes the channels that it reads, as do its
    counterparts, whose addresses differ only in numbers of blocks; if it fails again, so does
    everything in its module, then everything in the module around that, until the trial runs.
    After 20 trials all channels are fixed.

    Args:
        model: any module; never changed.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        living_norms: whether channels may go that norms average over, as for `thin`.

    Raises:
        ArgumentError: `example_inputs` is of no accepted form.
        TracingError: the model refuses the inputs.
    """
    fixed: dict[str, str] = {}
    failures: Counter[str] = Counter()
    for _ in range(_TRIALS):
        channels = analyze_channels(
            model,
            example_inputs,
            fixed=fixed,
            living_norms=living_norms,
        )
        trial = removed(model, channels, _some(channels))
        with sized_on_the_way(trial.model, trial.sizes):
            failing = failing_operation(model, trial.model, example_inputs)
        if failing is None:
            return channels
        addresses = trace(model, example_inputs).addresses
        found = _counterparts(addresses, failing.address, failures[failing.address])
        failures[failing.address] += 1
        reason = _REASON.format(address=failing.address)
        fixed |= dict.fromkeys(found - fixed.keys(), reason)
    everything = dict.fromkeys(trace(model, example_inputs).addresses, _TOO_MANY)
    return analyze_channels(model, example_inputs, fixed=everything)


def _counterparts(addresses: Iterable[str], failing: str, height: int) -> set[str]:
    """Return the addresses like `failing`, or within the module `height` levels around it."""
    parts = _nameless(failing).split("/")
    prefix = parts[: len(parts) - height]
    return {one for one in addresses if _nameless(one).split("/")[: len(prefix)] == prefix}


def _nameless(address: str) -> str:
    return re.sub(r"\[\d+\]", "[]", address)


def _some(channels: Channels) -> Selection:
    """Return groups to remove, so many that no two widths keep their ratio by accident."""
    groups = {
        group_set.name: np.arange(max(1, group_set.size // _PARTS[number % len(_PARTS)]))
        for number, group_set in enumerate(channels.prunable)
        if group_set.size > 1
    }
    return Selection(groups=groups, kept={})
