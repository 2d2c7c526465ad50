"""`NNCFNetwork`, the class of wrapped models, and `NNCFInterface`, the type of `model.nncf`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

import torch
from torch import nn
from typing_extensions import override

from nncfx.channels.trace import analyze_channels
from nncfx.errors import ArgumentError, GraphError, TracingError, did_you_mean
from nncfx.graph import NNCFGraph
from nncfx.graph.channels import Channels
from nncfx.network.moved_inputs import moved_inputs
from nncfx.network.published_state import is_published, publish, publishing, restore
from nncfx.storage.models.module_walk import all_tensors
from nncfx.storage.models.sharded_models import gathered
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.inputs import INPUT_FORMS, ExampleInputs
from nncfx.tracing.calls.module_stack import Wiring
from nncfx.tracing.calls.preservation import drop_kept
from nncfx.tracing.hooks.carried_state import CarriedState, StateOwner
from nncfx.tracing.hooks.dynamic_class import HookedModule
from nncfx.tracing.hooks.hooked_reads import hooked_reads
from nncfx.tracing.hooks.installation import install, unhooked, uninstall
from nncfx.tracing.hooks.sites import Insertion
from nncfx.tracing.hooks.store import STORE, HookStore, load_store
from nncfx.tracing.hooks.validation import check_insertion
from nncfx.tracing.record.tracer import trace

STATE: Final = "_nncf_state"
"""The instance attribute that holds the `WrapState` of a wrapped model."""


@dataclass
class WrapState:
    """The trace of a wrapped model and its insertions.

    Attributes:
        graph: The graph of the model without hooks.
        wiring: Where its operations are in its modules.
        example_inputs: The inputs it was traced with.
        further_inputs: Other inputs it was traced with.
        registered: Insertions by sequence number.
        committed: Sequence numbers of the insertions in place, in the order they are applied.
        next_sequence: The number of the next insertion.
    """

    graph: NNCFGraph
    wiring: Wiring
    example_inputs: ExampleInputs
    further_inputs: tuple[ExampleInputs, ...] = ()
    registered: dict[int, Insertion] = field(default_factory=dict)
    committed: tuple[int, ...] = ()
    next_sequence: int = 0


class NNCFNetwork(HookedModule):
    """Base class that `nncfx.wrap` adds to the class of a model.

    Instances are created by `nncfx.wrap` only. Hooks take part in `state_dict`, `named_modules`,
    `parameters`, `to`, `train` and `apply`, but not in `children`, so code that iterates over a
    model's children sees the original model.
    """

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = getattr(cls, "save_pretrained", None)
        if callable(own):
            cls.save_pretrained = publishing(own)  # type: ignore[attr-defined]  # transformers'

    @property
    def nncf(self) -> "NNCFInterface":
        """The interface of nncfx, in one attribute so it cannot clash with the model's names."""
        return NNCFInterface(self)

    @property
    def _store(self) -> HookStore:
        store: HookStore | None = self.__dict__.get(STORE)
        if store is None:
            raise TracingError(
                f"This {type(self).__name__} has no hooks: its class has its own way to be copied "
                "(__reduce__), which makes a new model. Wrap a model of another class that holds "
                "the same layers."
            )
        return store

    @override
    def named_modules(
        self, memo: set[nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Module]]:
        seen = set() if memo is None else memo
        is_new = self not in seen
        yield from super().named_modules(seen, prefix, remove_duplicate)
        if is_new:
            yield from self._store.described(prefix, seen)

    @override
    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch leaves it so
        if recurse:
            self._store._apply(fn)  # type: ignore[no-untyped-call]  # noqa: SLF001 (as nn.Module does)
        return self

    @override
    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self._store.train(mode)
        return self

    @override
    def apply(self, fn: Callable[[nn.Module], None]) -> Self:
        self._store.apply(fn)
        return super().apply(fn)

    @override
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        saved = super().state_dict(*args, **kwargs)
        if not self._store.is_empty:
            prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
            keep_vars = kwargs.get("keep_vars", False)
            below = f"{prefix}{STORE}."
            self._store.state_dict(destination=saved, prefix=below, keep_vars=keep_vars)
            for key in self._store.further_names():
                del saved[f"{below}{key}"]
            if is_published(self):
                saved.update(publish(self, self.nncf.hooks, saved, prefix))
        return saved

    @override
    def _load_from_state_dict(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        below = f"{prefix}{STORE}."
        own = {key: state_dict.pop(key) for key in list(state_dict) if key.startswith(below)}
        # children load from the same dict, and load hooks may rename keys in it
        restore(self, state_dict, own, prefix, below)
        tail = (missing_keys, unexpected_keys, error_msgs)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *tail)
        state_dict.update(own)
        load_store(self._store, own, below, local_metadata, *tail)

    @override
    def _replicate_for_data_parallel(self) -> Any:
        raise TracingError(
            "nn.DataParallel copies modules without their hooks and cannot run a wrapped model. "
            "Use DistributedDataParallel, one process per device."
        )


class InsertionHandle:
    """Removes the insertions of one `register` call; as a context manager, on exit."""

    def __init__(self, interface: "NNCFInterface", sequences: Iterable[int]) -> None:
        self._interface = interface
        self._sequences = frozenset(sequences)

    def remove(self) -> None:
        """Remove the insertions, and their hooks if committed; a second call does nothing."""
        self._interface.discard(self._sequences)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class NNCFInterface:
    """A wrapped model's `nncf`: its graph, and the hooks in it."""

    def __init__(self, model: NNCFNetwork) -> None:
        self._model = model

    @property
    def _state(self) -> WrapState:
        state: WrapState = self._model.__dict__[STATE]
        return state

    @property
    def graph(self) -> NNCFGraph:
        """The graph of the model without hooks, traced when it was wrapped."""
        return self._state.graph

    @property
    def folded_weights(self) -> frozenset[str]:
        """Names of the parameters that the forward writes to, which cannot have hooks."""
        return self._state.wiring.folded

    @property
    def channels(self) -> Channels:
        """Which channels must be removed together, and which cannot be removed and why.

        Runs one more forward, in evaluation mode and without hooks. `str` returns a table.
        """
        return analyze_channels(
            self._model, self.example_inputs, further_inputs=self.further_inputs
        )

    @property
    def example_inputs(self) -> ExampleInputs:
        """The inputs the model was traced with, moved to its present device.

        If all weights were converted to another dtype, so are the inputs of the old dtype.
        """
        return moved_inputs(self._model, self.graph, self._state.example_inputs)

    @property
    def further_inputs(self) -> tuple[ExampleInputs, ...]:
        """The other inputs the model was traced with, moved and converted likewise."""
        given = self._state.further_inputs
        return tuple(moved_inputs(self._model, self.graph, one) for one in given)

    @property
    def hooks(self) -> tuple[Insertion, ...]:
        """The insertions in place, in the order (priority, registration)."""
        return tuple(self._state.registered[number] for number in self._state.committed)

    @property
    def further_names(self) -> frozenset[str]:
        """The keys that `load_state_dict` accepts and `state_dict` does not write.

        Earlier versions saved the tensors of a hook at several sites once per site.
        """
        store: HookStore = self._model.__dict__[STORE]
        return frozenset(f"{STORE}.{key}" for key in store.further_names())

    def weight(self, name: str) -> torch.Tensor:
        """Return the parameter or buffer `name` as the forward reads it, through its hooks.

        Outside a forward, reading the module's attribute returns the value without hooks.

        Args:
            name: As in the `state_dict`, for instance `layer1.0.conv1.weight`.

        Raises:
            GraphError: the model has no tensor of that name.
        """
        tensors = all_tensors(self._model)
        if name not in tensors:
            near = did_you_mean(name, tensors)
            raise GraphError(
                f"{type(self._model).__name__} has no parameter or buffer '{name}'.{near}"
            )
        module, _, last = name.rpartition(".")
        with hooked_reads():
            read: torch.Tensor = getattr(self._model.get_submodule(module), last)
        return read

    @property
    def carried_names(self) -> frozenset[str]:
        """The keys under which `state_dict` may hold the states of controllers, as bytes.

        `load_state_dict` does not require them, since earlier files lack them.
        """
        store: HookStore = self._model.__dict__[STORE]
        return frozenset(f"{STORE}.{key}" for key in store.carried_names())

    def carry(self, algorithm: str, owner: StateOwner) -> CarriedState:
        """Save the state of `owner` in the `state_dict`, with the hooks of `algorithm`.

        Args:
            algorithm: Its name on the insertions. If it has no hooks, nothing is saved.
            owner: Its state is read by `state_dict` and restored by `load_state_dict`.
        """
        store: HookStore = self._model.__dict__[STORE]
        return store.carry(algorithm, owner)

    def untraced(self, example_inputs: ExampleInputs) -> list[str]:
        """Return the addresses that a forward of `example_inputs` adds to those of the graph.

        Such operations have no hooks. Runs one more forward, in evaluation mode.

        Raises:
            ArgumentError: `example_inputs` is not a tensor, tuple or mapping.
            TracingError: the model refuses the inputs or returns no tensor.
        """
        # hooks call functions too, in scopes that the model's own modules do not have
        model = unhooked(self._model)
        known = set(self.graph.addresses)
        return [one for one in trace(model, example_inputs).addresses if one not in known]

    def register(self, insertions: Insertion | Iterable[Insertion]) -> InsertionHandle:
        """Register one or several insertions; the model does not change until `commit`.

        Raises:
            ArgumentError: an argument is not an insertion, a hook is not a module, or an
                algorithm's name cannot be part of a key.
            GraphError: an address, a port, a module or a parameter does not exist, or cannot be
                hooked. Then none of `insertions` is registered.
        """
        planned = list(insertions) if isinstance(insertions, Iterable) else [insertions]
        modules = dict(self._model.named_modules(remove_duplicate=False))
        state = self._state
        for insertion in planned:
            check_insertion(insertion, modules, state.graph, state.wiring)
        numbers = range(state.next_sequence, state.next_sequence + len(planned))
        state.registered.update(zip(numbers, planned, strict=True))
        state.next_sequence += len(planned)
        return InsertionHandle(self, numbers)

    def commit(self) -> None:
        """Put every registered insertion in place.

        They are sorted by (priority, registration), across all `register` calls. Newly placed
        hooks take the model's training mode.

        Raises:
            TracingError: the model was sharded or offloaded since it was wrapped.
        """
        with gathered(self._model):
            require_whole(self._model, "given hooks")
            self._place(self._state.registered)

    def remove(self, algorithm: str) -> None:
        """Remove the insertions of `algorithm`, if any, and its hooks if committed."""
        registered = self._state.registered
        self.discard(
            frozenset(number for number, one in registered.items() if one.algorithm == algorithm)
        )

    def discard(self, numbers: frozenset[int]) -> None:
        """Remove the insertions of these sequence numbers, and their hooks if committed."""
        state = self._state
        remaining = [number for number in state.committed if number not in numbers]
        for number in numbers:
            state.registered.pop(number, None)
        if len(remaining) < len(state.committed):
            with gathered(self._model):
                self._place(remaining)

    def _place(self, numbers: Iterable[int]) -> None:
        state, store = self._state, self._model.__dict__[STORE]
        ordered = sorted(numbers, key=lambda number: (state.registered[number].priority, number))
        fresh = set(ordered).difference(state.committed)
        insertions = [state.registered[number] for number in ordered]
        uninstall(self._model)
        functions = {one.address: one.function for one in state.graph.operations}
        install(self._model, state.wiring, functions, insertions)
        store.clear()
        drop_kept(self._model)  # computed from weights as they were read before
        for number, insertion in zip(ordered, insertions, strict=True):
            store.put(insertion.algorithm, insertion.site.key, insertion.hook)
            if number in fresh:
                insertion.hook.train(self._model.training)
        state.committed = tuple(ordered)


def inputs_for(model: nn.Module, example_inputs: ExampleInputs | None) -> ExampleInputs:
    """Return `example_inputs`; if None, the inputs that a wrapped `model` was traced with.

    Raises:
        ArgumentError: they are None, and `model` is not wrapped.
    """
    if example_inputs is not None:
        return example_inputs
    if isinstance(model, NNCFNetwork):
        return model.nncf.example_inputs
    raise ArgumentError(
        f"There are no example inputs, and {type(model).__name__} is not wrapped, so it brings "
        f"none. Pass {INPUT_FORMS}."
    )
