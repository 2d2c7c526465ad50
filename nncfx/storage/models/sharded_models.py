"""Models of which each process holds a part (FSDP2, DTensor), made whole for a while: `gathered`.

A forward under FSDP sees whole weights, layer by layer, so hooks run as they do in one process.
What looks at weights outside of a forward (masks, ranges, compression steps, copies, files) does
so while the model is gathered. Every process has to come there: gathering is collective.
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
"""Where a module keeps what torch.distributed knows of it, and no copy may have."""


def is_distributed() -> bool:
    """Return whether `torch.distributed` runs."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def several_processes() -> bool:
    """Return whether `torch.distributed` runs, with more than one process."""
    return is_distributed() and torch.distributed.get_world_size() > 1


def has_shards(model: nn.Module) -> bool:
    """Return whether parameters of `model` are DTensors, which FSDP2 and tensor parallel make."""
    if not is_distributed():
        return False
    return any(
        is_dtensor(one) for module in _modules(model) for one in module._parameters.values()
    ) or any(is_fsdp2(type(module)) for module in _modules(model))


def whole(tensor: Tensor) -> Tensor:
    """Return every value of a DTensor, on each process; another tensor as it is."""
    if not is_dtensor(tensor):
        return tensor
    gather: Any = tensor
    found: Tensor = gather.full_tensor()
    return found


def local(tensor: Tensor) -> Tensor:
    """Return what this process holds of a DTensor; another tensor as it is."""
    here: Any = tensor
    found: Tensor = here.to_local() if is_dtensor(tensor) else tensor
    return found


def like_shards(tensor: Tensor, of: Tensor) -> Tensor:
    """Return `tensor`, which each process holds whole, divided as the DTensor `of` is."""
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
    """A parameter, its parts, and what it was when it had been gathered."""

    module: nn.Module
    name: str
    parts: Tensor
    gathered: Tensor
    version: int
    pointer: int


@contextmanager
def gathered(model: nn.Module) -> Iterator[list[Tensor]]:
    """Make a sharded `model` whole and plain in the body, on every process; nothing if it is.

    Parameters are ordinary ones there; classes, hooks and state of FSDP and of tensor parallel
    are away. Behind it everything is as before, with what the body wrote into the parameters;
    classes that it changed, as `nncfx.wrap` does, are sharded again.

    Yields:
        The parameters and buffers that were gathered, in memory of their own.
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
    """Return where the numbers of a tensor are, or those of this process's part of a DTensor."""
    return local(tensor).untyped_storage().data_ptr()


def _modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model; those of hooks are never sharded."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield module
            waiting.extend(one for one in module._modules.values() if one is not None)


def _plain(module: nn.Module) -> type[nn.Module]:
    """Give `module` back the class that FSDP2 has extended; return it."""
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
    """Take hooks and state of torch.distributed from `module`; return them by attribute."""
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
            # before all others: the weights are gathered before anything reads them
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
                    if _memory(values) == _memory(parts):  # this process holds it whole anyway
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
    """Put the parts of a parameter back, with what was written into the gathered values."""
    table: dict[str, Any] = (
        one.module._parameters if one.name in one.module._parameters else one.module._buffers
    )
    now = table[one.name]
    if now is not one.gathered or (now.data_ptr(), now._version) != (one.pointer, one.version):
        own: Any = one.parts
        divided: Any = like_shards(now.detach(), one.parts)
        own.to_local().copy_(divided.to_local())
    table[one.name] = one.parts
