"""Track which module makes a call, by a stack that is kept up to date while tracing."""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain
from types import FrameType
from typing import Any, Final, NamedTuple
from weakref import ref

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from nncfx.errors import TracingError
from nncfx.graph import Operation
from nncfx.tracing.calls.call_numbers import Site, next_number

_CALL: Final = "_compiled_call_impl"
"""The attribute that `nn.Module.__call__` calls if it is set; hooks take three times as long."""
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class Boundary:
    """An operation that is its module's only call, in training too.

    Attributes:
        arguments: The position or keyword of the forward's argument, by input port.
        is_result: Whether the forward returns the operation's single output and nothing else.
        visit: Number of calls of the module before the call that contains the operation.
    """

    arguments: Mapping[int, int | str]
    is_result: bool
    visit: int = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operation is called, as can be recognized at run time.

    Attributes:
        module: First dotted name of the calling module.
        call: Where the module's forward calls the function, and the number of earlier calls there.
        reads_floats: Whether any of its input tensors holds floats.
        rank: Number of earlier calls of the function by the module with equal `reads_floats`.
        boundary: Set if the operation is the only call of the module.
    """

    module: str
    call: tuple[Site, int]
    reads_floats: bool
    rank: int
    boundary: Boundary | None = None


@dataclass(frozen=True)
class Wiring:
    """Where operations are in their modules.

    Attributes:
        places: Places by address.
        calls: Number of calls of a module in one forward, by dotted name, if more than one.
        callees: Dotted names of the modules that a module calls, by its dotted name.
        counts: Number of calls of a function in one forward, by dotted name of the module,
            function and site, for modules that make several calls.
        on_floats: Number of calls of a function on floats, by dotted name of the module and
            function, if more than one.
        varying: The keys of `counts` whose number differs between several traces, and
            `visits_of(module)` if it is called a different number of times.
        folded: Dotted names of the parameters that a forward writes to.
        bypassed: The parameters that a forward reads, but never as an attribute of a module.
    """

    places: Mapping[str, Place]
    calls: Mapping[str, int]
    callees: Mapping[str, tuple[str, ...]]
    counts: Mapping[tuple[str, str, Site], int]
    on_floats: Mapping[tuple[str, str], int]
    varying: frozenset[tuple[str, str, Site]] = frozenset()
    folded: frozenset[str] = frozenset()
    bypassed: frozenset[str] = frozenset()

    @property
    def called(self) -> set[str]:
        """The dotted names of all called modules."""
        return {"", *chain.from_iterable(self.callees.values())}


def visits_of(module: str) -> tuple[str, str, Site]:
    """Return the key of the calls of `module` itself in `Wiring.varying`."""
    return module, "", ()


class _Seen(NamedTuple):
    """A tensor-producing call by the module `key`; its address is "" if it has no node."""

    key: str
    function: str
    site: Site
    reads_floats: bool
    address: str


class _First(NamedTuple):
    """The first call in a module call: the `id`s of what it reads, and what it produces."""

    address: str
    inputs: Sequence[int]
    produced: Sequence[ref[torch.Tensor]]


@dataclass
class Frame:
    """A module call in progress.

    Attributes:
        scope: NNCF's scope of the call.
        module: The dotted name under which the caller reaches the module.
        module_class: The module's class.
        key: The first dotted name of the module.
        caller: The Python frame that calls the forward.
        args: The positional arguments of the call.
        kwargs: Its keyword arguments.
        first: The first tensor-producing call in it.
        count: The number of these calls so far.
        has_callees: Whether it called another module.
        visit: The number of earlier calls of the module.
    """

    scope: str
    module: str
    module_class: type[nn.Module]
    key: str
    caller: FrameType
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    first: _First | None = None
    count: int = 0
    has_callees: bool = False
    visit: int = 0


class ModuleStack:
    """The module calls in progress, and the wiring found in finished calls.

    Only modules registered in the model are known. Calls by any other module count as its
    caller's.

    Attributes:
        named_modules: The modules of the model, under every name.
    """

    def __init__(self, model: nn.Module, modules: Sequence[tuple[str, nn.Module]]) -> None:
        """Create a stack for forwards of `model`; `modules` are its own, under every name."""
        self.named_modules = modules
        self._model = model
        self._names: dict[int, list[str]] = {}
        self._classes: dict[str, type[nn.Module]] = {}
        # by name, the parent's name and the part that the module adds to a scope
        self._parents: dict[str, tuple[str, str]] = {}
        self._modules: list[nn.Module] = []
        for name, module in modules:
            names = self._names.setdefault(id(module), [])
            names.append(name)
            kind = self._classes[name] = type(module)
            parent, _, part = name.rpartition(".")
            self._parents[name] = (parent, f"/{kind.__name__}[{part}]")
            if len(names) == 1:
                self._modules.append(module)
        self._frames: list[Frame] = []
        self._seen: list[_Seen] = []
        self._boundaries: dict[str, Boundary] = {}
        self._calls: Counter[str] = Counter()
        self._callees: dict[str, dict[str, None]] = {}

    @property
    def top(self) -> Frame:
        """The innermost module call in progress.

        Raises:
            TracingError: there is no such call, as in a `__call__` that computes outside the
                forward.
        """
        if not self._frames:
            name = type(self._model).__name__
            raise TracingError(
                f"{name} computes in its __call__, outside of its forward, where no hook can be. "
                f"Move that to the forward, or put {name} into a module that calls it."
            )
        return self._frames[-1]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep the stack up to date within the context.

        Raises:
            TracingError: a module is scripted.
        """
        self._check_scripts()
        handles: list[RemovableHandle] = []
        held: list[tuple[dict[str, Any], Any]] = []
        try:
            for module in self._modules:
                own = vars(module)
                held.append((own, own.get(_CALL, _MISSING)))
                hooks = module._forward_pre_hooks or module._forward_hooks  # noqa: SLF001 (nothing else tells)
                if hooks and module is not self._model:
                    own[_CALL] = None
                    # calls in these hooks count as the caller's, whose mode is active meanwhile
                    handles.append(module.register_forward_pre_hook(self._enter, with_kwargs=True))
                    handles.append(
                        module.register_forward_hook(self._left, always_call=True, prepend=True)
                    )
                    continue
                own[_CALL] = partial(self._called, module)
            yield
        finally:
            for handle in handles:
                handle.remove()
            for own, before in held:
                if before is _MISSING:
                    del own[_CALL]
                else:
                    own[_CALL] = before

    def _check_scripts(self) -> None:
        for module in self._modules:
            if isinstance(module, torch.jit.ScriptModule):
                name = self._names[id(module)][0]
                raise TracingError(
                    f"{repr(name) if name else 'The model'} is a {type(module).__name__}, where "
                    "no operation can be seen. Use the Python module that torch.jit.script or "
                    "torch.jit.trace made it from."
                )

    def saw_call(
        self,
        frame: Frame,
        operation: Operation | None,
        name: str,
        site: Site,
        inputs: Sequence[torch.Tensor],
        produced: Sequence[torch.Tensor],
    ) -> None:
        """Record a tensor-producing call in `frame`, the innermost module call."""
        address = "" if operation is None else operation.address
        reads_floats = any(map(torch.is_floating_point, inputs))
        self._seen.append(_Seen(frame.key, name, site, reads_floats, address))
        if not frame.count:
            frame.first = _First(address, [*map(id, inputs)], [*map(ref, produced)])
        frame.count += 1

    def wiring(self) -> Wiring:
        """Return the wiring found so far."""
        turns: dict[tuple[str, str, Site], int] = {}
        ranks: dict[tuple[str, str, bool], int] = {}
        known: dict[tuple[Site, int], tuple[Site, int]] = {}
        places: dict[str, Place] = {}
        # numbering all calls in one loop takes a third of the time that it takes call by call
        for key, function, site, reads_floats, address in self._seen:
            call = (site, next_number(turns, (key, function, site)))
            call = known.setdefault(call, call)  # most layers have equal tuples
            rank = next_number(ranks, (key, function, reads_floats))
            if address:
                boundary = self._boundaries.get(address)
                places[address] = Place(key, call, reads_floats, rank, boundary)
        callees = {name: tuple(called) for name, called in self._callees.items()}
        calls = {name: count for name, count in self._calls.items() if count > 1}
        on_floats = {
            (module, name): count
            for (module, name, reads_floats), count in ranks.items()
            if reads_floats and count > 1
        }
        made: Counter[str] = Counter()
        for (module, _, _), count in turns.items():
            made[module] += count
        # most modules make one call
        counts = {call: count for call, count in turns.items() if made[call[0]] > 1}
        return Wiring(places, calls, callees, counts, on_floats)

    def _enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        calling = sys._getframe(1)  # noqa: SLF001 (no public way)
        if not self._frames:
            kind = type(self._model)
            frame = Frame(kind.__name__, "", kind, "", calling, args, kwargs)
        else:
            caller = self._frames[-1]
            scope, name = self._scope(module, caller)
            first = self._names[id(module)][0]
            frame = Frame(scope, name, self._classes[name], first, calling, args, kwargs)
            caller.has_callees = True
            self._callees.setdefault(caller.key, {})[frame.key] = None
        frame.visit = next_number(self._calls, frame.key)
        self._frames.append(frame)

    def _scope(self, module: nn.Module, caller: Frame) -> tuple[str, str]:
        """Return the scope of a call of `module`, and the name under which it is called."""
        names = self._names[id(module)]
        # most have one name, and are called by their parents
        below = [one for one in names if _is_below(one, caller.module)]
        if below:
            name = below[0] if len(below) == 1 else min(below, key=lambda one: one.count("."))
            return caller.scope + self._relative(name, caller.module), name
        # not below its caller: use only the class name, as NNCF does
        name = names[0]
        return f"{caller.scope}/{self._classes[name].__name__}", name

    def _relative(self, path: str, caller: str) -> str:
        """Return the scope of the module `path` relative to the module `caller`."""
        parent, scope = self._parents[path]
        while parent != caller:
            parent, above = self._parents[parent]
            scope = above + scope
        return scope

    def _called(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Call a module as torch does, with its hooks."""
        self._enter(module, args, kwargs)
        result = None
        # what `__call__` calls by default
        call: Any = module._call_impl  # noqa: SLF001 (as above)
        try:
            result = call(*args, **kwargs)
        finally:
            self._leave(result)
        return result

    def _left(self, module: nn.Module, args: Any, result: Any) -> None:
        del module, args
        self._leave(result)

    def _leave(self, result: Any) -> None:
        frame = self._frames.pop()
        first = frame.first
        if frame.has_callees or frame.count != 1 or first is None or not first.address:
            return
        if _reads_training(frame.module_class.forward):
            return
        given: dict[int, int | str] = {id(one): key for key, one in frame.kwargs.items()}
        given |= {id(one): position for position, one in enumerate(frame.args)}
        self._boundaries[first.address] = _boundary(
            tuple([(port, given[one]) for port, one in enumerate(first.inputs) if one in given]),
            is_result=len(first.produced) == 1 and result is first.produced[0](),
            visit=frame.visit,
        )


@lru_cache(maxsize=256)
def _boundary(
    arguments: tuple[tuple[int, int | str], ...], *, is_result: bool, visit: int
) -> Boundary:
    # nearly all layers have equal boundaries, so share one object
    return Boundary(dict(arguments), is_result, visit)


def _reads_training(forward: Any) -> bool:
    """Return whether `forward` is not torch's and may make further calls in training."""
    code = getattr(forward, "__code__", None)
    if code is None or (forward.__module__ or "").startswith("torch."):
        return False
    return "training" in code.co_names


def _is_below(name: str, caller: str) -> bool:
    return name != caller and (not caller or name.startswith(f"{caller}."))
