"""Finds out by trial which channels can be removed: `prunable_channels`."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, ThinningError, TracingError
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels
from nncfx.graph.operations import Operation
from nncfx.storage.models.module_walk import all_modules
from nncfx.thinning.divergence import operations_before_failure
from nncfx.thinning.forward.arguments import Arguments, forward_arguments
from nncfx.thinning.forward.fx_graph import ForwardGraph, forward_graph
from nncfx.thinning.forward.graph_form import with_literals
from nncfx.thinning.removal import removed
from nncfx.thinning.selection import Selection
from nncfx.thinning.surgery import sized_on_the_way
from nncfx.tracing import ExampleInputs
from nncfx.tracing.hooks.dynamic_class import HookedModule
from nncfx.tracing.hooks.installation import unhooked
from nncfx.tracing.record.tracer import trace_of_shapes

Form: TypeAlias = Literal["class", "auto"]
"""Whether modules keep their classes, or become graphs if their code contains a width."""

_TRIALS: Final = 20
_TOO_MANY: Final = f"the code holds widths at more than {_TRIALS} places"
_PARTS: Final = (3, 5, 7, 4)
_CONTAINER: Final = re.compile(r"\w*(Sequential|ModuleList)\b")
_HELD: Final = "the code around it holds a width"
_REASON: Final = f"'{{address}}' fails without some of them: {_HELD}{{more}}"
_HOW: Final = "; as a graph (form='auto') the module could lose them"


def check_form(form: str) -> None:
    """Check that `form` is valid.

    Raises:
        ArgumentError: it is not.
    """
    if form not in ("auto", "class"):
        raise ArgumentError(
            f"form is {form!r}. Give 'class' to keep the class of every module, or 'auto' to let "
            "modules become graphs whose code holds a width."
        )


def prunable_channels(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    further_inputs: Sequence[ExampleInputs] = (),
    living_norms: bool = False,
    form: Form = "class",
) -> Channels:
    """Return the groups of channels of `model`; those that its code needs are fixed.

    Code can contain a width that is not visible in any tensor or integer of a module. So a part of
    every set is removed on trial. If an operation then fails, the channels that it reads are
    fixed, as are those of its counterparts, whose addresses differ only in block numbers; if it
    fails again, so is everything in its module, then everything in the enclosing module, until the
    trial runs. After 20 trials all channels are fixed.

    With `form="auto"` modules whose code contains a width are first converted to graphs, in which
    it can change (`Channels.forms`); only channels that fail even then are fixed.

    Args:
        model: any module; never changed. Hooks of a wrapped model are ignored.
        example_inputs: a tensor, a tuple of positional inputs, or a mapping of keyword inputs.
        further_inputs: more example inputs, for a model whose forward branches.
        living_norms: whether channels that norms average over may be removed, as for `thin`.
        form: "class": every module keeps its class; or "auto".

    Raises:
        ArgumentError: `example_inputs` or `form` is invalid.
        TracingError: the model rejects the inputs.
    """
    check_form(form)
    inputs = (example_inputs, *further_inputs)
    if isinstance(model, HookedModule):  # hooks hold masks and scales for the current widths
        model = unhooked(model)
    subject = _Subject(model, inputs, is_free=form == "auto")
    fixed: dict[str, str] = {}
    failures: Counter[str] = Counter()
    for _ in range(_TRIALS):
        channels = subject.channels(fixed, living_norms=living_norms)
        if subject.take_as_graphs(_held_by_code(channels)):
            continue
        failing = subject.trial(channels)
        if failing is None:
            return channels
        if subject.take_as_graphs([*_around(failing.module), *channels.literals]):
            continue
        found = _counterparts(subject.addresses, failing.address, failures[failing.address])
        failures[failing.address] += 1
        reason = _REASON.format(address=failing.address, more="" if form == "auto" else _HOW)
        fixed |= dict.fromkeys(found - fixed.keys(), reason)
    everything = dict.fromkeys(subject.addresses, _TOO_MANY)
    return analyze_channels(model, example_inputs, further_inputs=further_inputs, fixed=everything)


def _held_by_code(channels: Channels) -> list[str]:
    """Return the modules whose code requires some channels of `channels`."""
    fixing = {one.fixed_at for one in channels if one.fixed is not None}
    return [module for module, places in channels.literals.items() if fixing.intersection(places)]


class _Subject:
    """A model of which some modules are converted to graphs."""

    def __init__(
        self, model: nn.Module, inputs: Sequence[ExampleInputs], *, is_free: bool
    ) -> None:
        self._model = model
        self._inputs = inputs
        self._forms: dict[str, ForwardGraph] = {}
        self._arguments: dict[str, Arguments] = {}
        self._left = [name for name, one in all_modules(model) if _has_own_code(one)]
        if not is_free:
            self._left = []

    @cached_property
    def _traces(self) -> list[NNCFGraph]:
        return [trace_of_shapes(self._model, one).graph for one in self._inputs]

    @property
    def addresses(self) -> list[str]:
        """Return the addresses of all operations of the model."""
        return list(dict.fromkeys(one for each in self._traces for one in each.addresses))

    def take_as_graphs(self, names: Iterable[str]) -> bool:
        """Convert the given modules to graphs where possible; return whether any is new.

        Others of the same classes have the same code, so they are converted at once.
        """
        before = set(self._forms)
        self._convert(names)
        kinds = {type(self._model.get_submodule(one)) for one in self._forms.keys() - before}
        alike = [one for one in self._left if type(self._model.get_submodule(one)) in kinds]
        self._convert(alike)
        return len(self._forms) > len(before)

    def _convert(self, names: Iterable[str]) -> None:
        # a module with several names is called by one, and listed by another
        modules = {self._model.get_submodule(name) for name in names}
        wanted = [name for name in self._left if self._model.get_submodule(name) in modules]
        self._left = [name for name in self._left if name not in wanted]
        arguments: dict[str, Arguments] = {}
        for one in self._inputs if wanted else ():
            arguments = forward_arguments(self._model, one, wanted) | arguments
        for name, given in arguments.items():
            try:
                form = forward_graph(self._model.get_submodule(name), given)
            except ThinningError:
                continue  # it keeps its class, and its channels if it fails again
            if form.literals:
                self._forms[name], self._arguments[name] = form, given

    def channels(self, fixed: Mapping[str, str], *, living_norms: bool) -> Channels:
        """Return the channels of the model; integers of graphs are widths."""
        first, *further = self._inputs
        how: dict[str, Any] = {"fixed": fixed, "living_norms": living_norms}
        while True:
            subject = with_literals(self._model, self._forms)
            try:
                found = analyze_channels(subject, first, further_inputs=further, **how)
            except TracingError:
                if not self._forms:
                    raise
                # a module that is called in several ways rejects some of the calls as a graph
                alone = {name: one for name, one in self._forms.items() if self._runs(name, one)}
                self._forms = alone if len(alone) < len(self._forms) else {}
            else:
                return replace(found, forms={name: self._arguments[name] for name in self._forms})

    def _runs(self, name: str, form: ForwardGraph) -> bool:
        subject = with_literals(self._model, {name: form})
        try:
            for one in self._inputs:
                trace_of_shapes(subject, one)
        except TracingError:
            return False
        return True

    def trial(self, channels: Channels) -> Operation | None:
        """Return the operation that fails without some of the channels; None if none fails.

        Also tries removing more: parts that happen to be one channel wide would be broadcast.
        """
        for selection in (_parts(channels, _some), _parts(channels, _most)):
            smaller = removed(self._model, channels, selection, graphs=self._forms)
            for number, one in enumerate(self._inputs):
                with sized_on_the_way(smaller.model, smaller.sizes):
                    count = operations_before_failure(smaller.model, one)
                if count is not None:  # the last operation, if only shapes of outputs differ
                    operations = self._traces[number].operations
                    return operations[min(count, len(operations) - 1)]
        return None


def _has_own_code(module: nn.Module) -> bool:
    """Return whether the forward of a module is not torch's."""
    return not type(module).__module__.startswith("torch.nn.")


def _around(module: str) -> list[str]:
    """Return the names of a module and of all enclosing ones."""
    parts = module.split(".") if module else []
    return [".".join(parts[:end]) for end in range(len(parts), -1, -1)]


def _counterparts(addresses: Iterable[str], failing: str, height: int) -> set[str]:
    """Return the addresses like `failing`, or within the module `height` levels around it."""
    parts = _nameless(failing).split("/")
    prefix = parts[: len(parts) - height]
    return {one for one in addresses if _nameless(one).split("/")[: len(prefix)] == prefix}


def _nameless(address: str) -> str:
    """Return an address without numbers: `[3]`, and in containers `[stage3]`, `[unit12]`."""
    parts = address.split("/")
    return "/".join(
        re.sub(r"\d+\]$" if _CONTAINER.match(before) else r"(?<=\[)\d+\]$", "]", part)
        for before, part in zip(["", *parts], parts, strict=False)
    )


def _parts(channels: Channels, count: Callable[[int, int], int]) -> Selection:
    """Return groups to remove, never all; `count` maps a set's number and size to how many."""
    groups = {
        one.name: np.arange(one.removable(count(number, one.size)))
        for number, one in enumerate(channels.prunable)
        if one.size > 1
    }
    return Selection(groups=groups, kept={})


def _some(number: int, size: int) -> int:
    """Return a count for which no two widths keep their ratio by accident."""
    return max(1, size // _PARTS[number % len(_PARTS)])


def _most(_: int, size: int) -> int:
    """Return more than half of `size`."""
    return min(size - 1, -(-size * 3 // 5))
