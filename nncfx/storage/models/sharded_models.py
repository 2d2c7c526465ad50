"""Gather models of which each process holds a part (FSDP2, DTensor) temporarily.

A forward under FSDP sees whole weights, layer by layer, so hooks run as in a single process. Code
that reads weights outside of a forward (masks, ranges, compression steps, copies, files) runs
while the model is `gathered`. Gathering is collective: every process must take part.
"""
# ruff: noqa: SLF001 (walks the tables of modules, as torch does)

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.storage.models.whole_models import is_dtensor, is_fsdp2

_DISTRIBUTED: Final = "torch.distributed."
_HOOKS: Final = (
    "_forward_pre_hooks",
    "_forward_hooks",
    "_state_dict_pre_hooks",
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_STATE: Final = "__composable_api_"
"""The prefix of attributes in which torch.distributed keeps state that must not be copied."""


def is_distributed() -> bool:
    """Return whether `torch.distributed` is initialized."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def several_processes() -> bool:
    """Return whether `torch.distributed` is initialized with more than one process."""
    return is_distributed() and torch.distributed.get_world_size() > 1


def has_shards(model: nn.Module) -> bool:
    """Return whether `model` has DTensors, as with FSDP2 and tensor parallelism."""
    if not is_distributed():
        return False
    return any(
        is_dtensor(one) for module in _modules(model) for one in module._parameters.values()
    ) or any(is_fsdp2(type(module)) for module in _modules(model))


def whole(tensor: Tensor) -> Tensor:
    """Return every value of a DTensor, on each process; any other tensor unchanged."""
    if not is_dtensor(tensor):
        return tensor
    gather: Any = tensor
    found: Tensor = gather.full_tensor()
    return found


def local(tensor: Tensor) -> Tensor:
    """Return the part of a DTensor that this process holds; any other tensor unchanged."""
    here: Any = tensor
    found: Tensor = here.to_local() if is_dtensor(tensor) else tensor
    return found


def like_shards(tensor: Tensor, of: Tensor) -> Tensor:
    """Return `tensor`, which each process holds whole, divided like the DTensor `of`."""
    if not is_dtensor(of) or is_dtensor(tensor):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    assert isinstance(of, DTensor)  # noqa: S101 (is_dtensor)
    mesh = of.device_mesh
    there = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    found: Tensor = there.redistribute(mesh, of.placements)
    return found


@dataclasses.dataclass
class _Parted:
    """A parameter, its parts, and its state right after gathering."""

    module: nn.Module
    name: str
    parts: Tensor
    gathered: Tensor
    version: int
    pointer: int


@contextmanager
def gathered(model: nn.Module) -> Iterator[list[Tensor]]:
    """Make a sharded `model` whole and plain in the body, on every process; others stay unchanged.

    Inside the body, parameters are ordinary, and classes, hooks and state of FSDP and of tensor
    parallelism are removed. Afterwards they are restored, and parameters keep the values that the
    body wrote; classes that it changed, as `nncfx.wrap` does, are sharded again.

    Yields:
        The gathered parameters and buffers, in their own memory.
    """
    if not has_shards(model):
        yield []
        return
    modules = list(_modules(model))
    for module in modules:
        if is_fsdp2(type(module)):
            reshard: Any = module
            reshard.reshard()
    taken = [_taken(module) for module in modules]
    classes = [(one, type(one), _plain(one)) for one in modules if is_fsdp2(type(one))]
    parted = _gather(modules)
    try:
        yield [one.gathered for one in parted]
    finally:
        for one in parted:
            _scatter(one)
        for module, sharded, plain in classes:
            module.__class__ = _sharded_again(type(module), sharded, plain)
        for module, one_taken in zip(modules, taken, strict=True):
            _put_back(module, one_taken)


def _memory(tensor: Tensor) -> int:
    """Return the address of a tensor's numbers, or of this process's part of a DTensor."""
    return local(tensor).untyped_storage().data_ptr()


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model, except those of hooks, which are never sharded."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting.extend(one for one in module._modules.values() if one is not None)


def _plain(module: nn.Module) -> type[nn.Module]:
    """Restore the class of `module` that FSDP2 has extended, and return it."""
    plain: Any = type(module).__mro__[2]  # FSDP<X>, FSDPModule, X
    module.__class__ = plain
    found: type[nn.Module] = plain
    return found


def _sharded_again(
    now: type[nn.Module], sharded: type[nn.Module], plain: type[nn.Module]
) -> type[nn.Module]:
    if now is plain:
        return sharded
    body = {"__deepcopy__": vars(sharded)["__deepcopy__"]}
    made: type[nn.Module] = type(f"FSDP{now.__name__}", (sharded.__mro__[1], now), body)
    return made


def _taken(module: nn.Module) -> dict[str, Any]:
    """Remove hooks and state of torch.distributed from `module`; return them by attribute."""
    attributes = vars(module)
    taken: dict[str, Any] = {
        key: attributes.pop(key) for key in list(attributes) if key.startswith(_STATE)
    }
    for table in _HOOKS:
        hooks: dict[int, Any] = attributes[table]
        foreign = {key: one for key, one in hooks.items() if _is_foreign(one)}
        for key in foreign:
            del hooks[key]
        taken[table] = foreign
    return taken


def _is_foreign(hook: Any) -> bool:  # noqa: ANN401 (any callable)
    function = getattr(hook, "hook", hook)  # some are wrapped
    return str(getattr(function, "__module__", "")).startswith(_DISTRIBUTED)


def _put_back(module: nn.Module, taken: dict[str, Any]) -> None:
    attributes = vars(module)
    for key, value in taken.items():
        if key in _HOOKS:
            # before all other hooks, so that weights are gathered before anything reads them
            others = dict(attributes[key])
            attributes[key].clear()
            attributes[key].update(value | others)
        else:
            attributes[key] = value


def _gather(modules: list[nn.Module]) -> list[_Parted]:
    parted: list[_Parted] = []
    known: dict[int, Tensor] = {}
    for module in modules:
        for table in (module._parameters, module._buffers):
            for name, parts in table.items():
                if parts is None or not is_dtensor(parts):
                    continue
                if id(parts) not in known:
                    values = whole(parts.detach())
                    if _memory(values) == _memory(parts):  # this process holds the whole tensor
                        values = values.clone()
                    known[id(parts)] = (
                        nn.Parameter(values, requires_grad=parts.requires_grad)
                        if isinstance(parts, nn.Parameter)
                        else values
                    )
                one = known[id(parts)]
                places: dict[str, Any] = table
                places[name] = one
                pointer = one.data_ptr()
                parted.append(_Parted(module, name, parts, one, one._version, pointer))
    return parted


@torch.no_grad()
def _scatter(one: _Parted) -> None:
    """Restore the parts of a parameter, with changes that were made to the gathered values."""
    table: dict[str, Any] = (
        one.module._parameters if one.name in one.module._parameters else one.module._buffers
    )
    now = table[one.name]
    if now is not one.gathered or (now.data_ptr(), now._version) != (one.pointer, one.version):
        own: Any = one.parts
        divided: Any = like_shards(now.detach(), one.parts)
        own.to_local().copy_(divided.to_local())
    table[one.name] = one.parts
