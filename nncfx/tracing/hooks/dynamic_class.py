"""Dynamic subclasses, which add hooks to a module without changing its identity."""

import copy
import copyreg
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from types import MappingProxyType, MethodType, new_class
from typing import Any, Final, SupportsIndex
from weakref import WeakValueDictionary

from torch import nn
from torch.nn.utils import parametrize
from typing_extensions import override

from nncfx.errors import TracingError
from nncfx.storage.models.whole_models import (
    is_dtensor,
    is_fsdp2,
    is_fully_sharded,
    is_sharded,
    sharding_fix,
)
from nncfx.tracing.calls.model_copy import keep_class_names
from nncfx.tracing.hooks.activation_hooks import planned_forward
from nncfx.tracing.hooks.boundary_hooks import Around, direct_forward
from nncfx.tracing.hooks.call_hooks import telling_calls, telling_hidden_calls
from nncfx.tracing.hooks.forward_method import forward_method
from nncfx.tracing.hooks.hooked_reads import are_hooked, reading_hooked
from nncfx.tracing.hooks.weight_hooks import raise_replacing, weight_properties

_OURS: Final = "_nncf"
_SPEC: Final = f"{_OURS}_spec"
_DEEPCOPY: Final = "__deepcopy__"


class HookedModule(nn.Module):
    """Base class of every module that carries hooks; never instantiated on its own."""

    _nncf_spec: "ClassSpec"

    @override
    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if is_fully_sharded(cls) and not is_fsdp2(cls):
            raise TracingError(
                f"{cls.__name__} cannot be wrapped and sharded at once: hooks take whole weights, "
                f"which FSDP of version 1 does not give them. {sharding_fix} "
                "FSDP has begun to shard this one, so build it again."
            )
        if _SPEC not in vars(cls) and cls.__module__ == parametrize.__name__:
            raise TracingError(
                f"{cls.__name__} would parametrize a module that carries hooks of nncfx. "
                "Parametrize it before nncfx.wrap, or parametrize what nncfx.strip returns."
            )

    @override
    def get_parameter(self, target: str) -> nn.Parameter:
        """Return the stored parameter; torch's own method would return the hooked value."""
        path, _, name = target.rpartition(".")
        stored = self.get_submodule(path)._parameters.get(name)  # noqa: SLF001 (what is stored)
        return super().get_parameter(target) if stored is None else stored

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        # proxies that torch.export makes of modules have no _modules
        modules = self.__dict__.get("_modules", {})
        if name in modules:
            _check_replacement(modules[name], name, value)
        parameters = self.__dict__.get("_parameters", {})
        if name in parameters and isinstance(value, nn.Parameter) and are_hooked():
            # FSDP2 sets shards and whole weights within a forward; torch's own method reads the
            # attribute first, which would run each hook again
            parameters[name] = value
            return
        super().__setattr__(name, value)

    @override
    def add_module(self, name: str, module: nn.Module | None) -> None:
        _check_replacement(self._modules.get(name), name, module)
        super().add_module(name, module)

    @override
    def __delattr__(self, name: str) -> None:
        if name in self._parameters:
            raise_replacing(self, name)
        _check_replacement(self._modules.get(name), name, None)
        super().__delattr__(name)

    @override
    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if is_sharded(param) and not is_dtensor(param):
            raise TracingError(
                f"'{name}' of this {type(self).__name__} cannot be sharded, now that nncfx has "
                f"wrapped it: hooks take whole weights. {sharding_fix}"
            )
        stored = self._parameters.get(name) if name in spec_of(self).weights else None
        if param is not None and stored is not None and param.shape != stored.shape:
            raise TracingError(
                f"'{name}' of this {type(self).__name__} cannot become of shape "
                f"{tuple(param.shape)}: its hooks were made for {tuple(stored.shape)}. Resize "
                "layers before nncfx.wrap or create_compressed_model, or once it is stripped."
            )
        super().register_parameter(name, param)

    def __prepare_scriptable__(self) -> nn.Module:
        """Refuse torch.jit.script, which would compile the source of methods without the hooks.

        Raises:
            TracingError: always.
        """
        raise TracingError(
            f"torch.jit.script cannot compile a {type(self).__name__} that nncfx has wrapped. "
            "Script what nncfx.strip(model) returns, or use torch.export.export(model, args), "
            "which keeps the hooks."
        )

    @override
    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        spec = spec_of(self)
        with _as_original(self):
            reduced: Any = self.__reduce_ex__(protocol)  # the original class's method
        function, args, *rest = reduced
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]  # the stubs lack it
            return (_revive, (_parts(spec), args[1:]), *rest)
        if function is copyreg.__newobj_ex__:  # type: ignore[attr-defined]  # as above
            return (_revive, (_parts(spec), *args[1:]), *rest)
        foreign = _parts(replace(spec, original=nn.Module))
        return (_revive_foreign, (foreign, function, args), *rest)


def _check_replacement(known: nn.Module | None, name: str, value: Any) -> None:
    """Raise an error if replacing the module `known` would silently remove its hooks.

    A new module that contains `known`, such as an adapter or a compiler's, keeps the hooks.
    """
    if known is None or known is value:
        return
    kept = set(value.modules()) if isinstance(value, nn.Module) else set()
    for path, module in known.named_modules():
        if isinstance(module, HookedModule) and module not in kept and spec_of(module).is_hooked:
            lost = f"{name}.{path}" if path else name
            raise TracingError(
                f"The {original_class(module).__name__} '{lost}' carries hooks of nncfx, which "
                "would be lost with it. Replace modules before nncfx.wrap or "
                "create_compressed_model, or once the model is stripped. What is not stripped, "
                "quantizers of activations, model.nncf.remove('quantization') takes away."
            )


@dataclass(frozen=True)
class ClassSpec:
    """The specification of a dynamic class, from which the class can be rebuilt.

    Attributes:
        original: The class without hooks.
        mixin: `HookedModule` or a subclass of it, the first base.
        weights: Names of the parameters and buffers that are read through hooks.
        around: How `forward` is wrapped.
        entries: Names of the methods during which weights are read through hooks.
        tells_calls: Whether hooks are notified of each call.
        method: Name of the method that `around` wraps, in place of `forward`, if the instance has
            a `forward` of its own that is this method.
    """

    original: type[nn.Module]
    mixin: type[HookedModule]
    weights: frozenset[str] = frozenset()
    around: Around = Around.NOTHING
    entries: tuple[str, ...] = ()
    tells_calls: bool = False
    method: str = "forward"

    @property
    def is_hooked(self) -> bool:
        """Whether the module itself has a hook."""
        return bool(self.weights) or self.around is not Around.NOTHING


def _parts(spec: ClassSpec) -> tuple[Any, ...]:
    return tuple(getattr(spec, one.name) for one in fields(spec))


_CLASSES: Final[WeakValueDictionary[ClassSpec, type[nn.Module]]] = WeakValueDictionary()
_RECENT: Final[deque[type[nn.Module]]] = deque(maxlen=64)
"""Classes made last, kept for the next copy of a model, as in each trial of a search.

Making one takes 3 to 7 % of the time in which a small transformer is wrapped, since transformers
reads the type hints of a forward whenever its class gets a subclass; 1 % for others.
"""


def _dynamic_class(spec: ClassSpec) -> type[nn.Module]:
    known = _CLASSES.get(spec)
    if known is not None:
        return known
    original = spec.original
    body: dict[str, Any] = {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        _SPEC: spec,
        **weight_properties(original, spec.weights),
    }
    own = getattr(original, spec.method)
    if spec.around is Around.PLAN:
        body[spec.method] = planned_forward(own)
    elif spec.around is not Around.NOTHING:
        body[spec.method] = direct_forward(own, spec.around)
    if hasattr(original, _DEEPCOPY):
        body[_DEEPCOPY] = _copied_as_original
    for name in spec.entries:
        body[name] = reading_hooked(body.get(name, getattr(original, name)))
    if spec.tells_calls:
        body[spec.method] = telling_calls(body.get(spec.method, own))
        body["__call__"] = telling_hidden_calls(body.get("__call__", original.__call__))
    bases: tuple[type, ...] = (spec.mixin, original)
    keywords: dict[str, Any] = {}
    if not _has_layout_of_modules(original):
        metaclass = type(original)
        # also derived from the class's own metaclass, such as abc.ABCMeta
        mixin_first = type(metaclass.__name__, (_MixinFirst, metaclass), {})
        bases, keywords = (original,), {"metaclass": mixin_first}
    made = new_class(original.__name__, bases, keywords, lambda names: names.update(body))
    _CLASSES[spec] = made
    _RECENT.append(made)
    return made


class _MixinFirst(type):
    """Puts the mixin first in the method resolution order, though it is not a base.

    A class has the memory layout of its first base, and only a class of the same layout can be
    assigned to `__class__`.
    """

    @override
    def mro(cls) -> list[type]:
        order = super().mro()
        spec = vars(cls).get(_SPEC)
        if spec is None:
            return order
        first = [one for one in spec.mixin.__mro__ if one not in order]
        return [cls, *first, *order[1:]]


def _has_layout_of_modules(original: type[nn.Module]) -> bool:
    """Return whether instances have the memory layout of nn.Module.

    They do not if a first base without attributes, such as `abc.ABC` or `typing.Generic`, comes
    before nn.Module.
    """
    last: type = original
    while last.__base__ is not None and last.__base__ is not object:
        last = last.__base__
    return "__dict__" in vars(last)


def change_class(module: nn.Module, spec: ClassSpec) -> None:
    """Make `module` an instance of the dynamic class of `spec`."""
    _become(module, _dynamic_class(spec))


def _become(module: nn.Module, kind: type[nn.Module]) -> None:
    """Make `module` an instance of `kind`, and a forward of its own the method of that."""
    method = forward_method(module)
    module.__class__ = kind
    if method is not None and "forward" in module.__dict__:
        module.__dict__["forward"] = MethodType(getattr(kind, method), module)


def spec_of(module: HookedModule) -> ClassSpec:
    """Return the specification of the dynamic class of `module`."""
    return module._nncf_spec  # noqa: SLF001 (no public name may clash with the model's own)


def original_class(module: nn.Module) -> type[nn.Module]:
    """Return the class of `module` without hooks."""
    return spec_of(module).original if isinstance(module, HookedModule) else type(module)


def restore_class(module: nn.Module) -> None:
    """Make `module` an instance of its original class again; nothing else changes."""
    _become(module, original_class(module))


@contextmanager
def _as_original(module: nn.Module) -> Iterator[None]:
    """Restore the original class of `module` within the block.

    Modules of torch.fx create a new class when they are copied, and modify their class when they
    are pickled.
    """
    dynamic = type(module)
    module.__class__ = original_class(module)
    try:
        yield
    finally:
        module.__class__ = dynamic


def _copied_as_original(module: HookedModule, memo: dict[int, Any]) -> nn.Module:
    """Return a copy with hooks, made by the original class's own `__deepcopy__`."""
    spec = spec_of(module)
    with _as_original(module):
        copied: nn.Module = getattr(module, _DEEPCOPY)(memo)
        keep_class_names(module, memo)
    ours = {name: value for name, value in vars(module).items() if name.startswith(_OURS)}
    vars(copied).update(copy.deepcopy(ours, memo))
    change_class(copied, replace(spec, original=type(copied)))
    return copied


def _revive(
    parts: tuple[Any, ...],
    args: tuple[Any, ...] = (),  # missing in pickles of earlier versions
    kwargs: Mapping[str, Any] = MappingProxyType({}),
) -> nn.Module:
    made = _dynamic_class(ClassSpec(*parts))
    return made.__new__(made, *args, **kwargs)


def _revive_foreign(
    parts: tuple[Any, ...], function: Callable[..., nn.Module], args: tuple[Any, ...]
) -> nn.Module:
    module = function(*args)
    # torch.fx sets attributes one by one, which registers modules; others have no state yet
    registered = vars(module).get("_modules", {})
    for name in [one for one in registered if one.startswith(_OURS)]:
        vars(module)[name] = registered.pop(name)
    change_class(module, replace(ClassSpec(*parts), original=original_class(module)))
    return module
