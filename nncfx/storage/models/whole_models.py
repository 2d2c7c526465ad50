"""Refuse models of which this process does not hold every value as a number.

Only this module recognizes models that are sharded, offloaded, or in a form of another library.
Classes of other packages (torch.distributed, DeepSpeed, accelerate) are recognized by name and
never imported.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from nncfx.errors import ArgumentError, NNCFXError, TracingError
from nncfx.storage.models.module_walk import all_tensors, named_modules

_FSDP: Final = "torch.distributed.fsdp"
_SHARDED: Final = frozenset({"DTensor", "ShardedTensor"})
_PLAIN: Final = (torch.Tensor, nn.Parameter)
_HOOK: Final = "_hf_hook"
"""The attribute in which accelerate keeps the hook that fetches a module's parameters."""

sharding_fix: Final = (
    "What fully_shard (FSDP2) or tensor parallel has sharded is gathered by nncfx.wrap, "
    "create_compressed_model, quantize, strip, thin, save and load. For all else compress and "
    "train the whole model, in one process or under DistributedDataParallel, and shard what "
    "nncfx.strip returns only to run it: trained on, it gives up its zeros and codes."
)


def require_whole(
    model: nn.Module,
    done: str,
    error: type[NNCFXError] = TracingError,
    *,
    is_only_run: bool = False,
    modules: Iterable[tuple[str, nn.Module]] | None = None,
) -> None:
    """Refuse a `model` of which this process does not hold every value as a number.

    Args:
        model: any module.
        done: what cannot be done with it otherwise, such as "thinned".
        error: the class of the error.
        is_only_run: whether weights are only read by the forward, which knows their form.
        modules: its `named_modules`, if they are known.

    Raises:
        NNCFXError: of the class `error`; a parameter is sharded (DTensor, FSDP, DeepSpeed ZeRO),
            offloaded (accelerate) or in another library's form (torchao). The message names it
            and says what to do.
    """
    kind = type(model).__name__
    known: set[type] = set()  # the few classes of modules that are not sharded
    for name, module in named_modules(model) if modules is None else modules:
        if type(module) not in known and is_fully_sharded(type(module)):
            where = f"its module '{name}' is" if name else "it is"
            raise error(f"{kind} cannot be {done}: {where} sharded by FSDP. {sharding_fix}")
        known.add(type(module))
        for key, tensor in _peculiar(module):
            parameter = f"{name}.{key}" if name else key
            if is_sharded(tensor):
                raise error(
                    f"{kind} cannot be {done}: this process holds only a part of '{parameter}', "
                    f"a {type(tensor).__name__}. {sharding_fix}"
                )
            if not is_only_run:
                require_numbers(tensor, f"{kind} cannot be {done}: '{parameter}'", error)
            if tensor.is_meta and is_offloaded(module):
                raise error(
                    f"{kind} cannot be {done}: the values of '{parameter}' are offloaded, and "
                    "come only while its forward runs. Bring them back with "
                    "accelerate.hooks.remove_hook_from_module(model, recurse=True), or load the "
                    "model without a device_map."
                )


def require_numbers(tensor: object, what: str, error: type[NNCFXError]) -> None:
    """Refuse a `tensor`, called `what` in the message, in another library's form (torchao).

    Raises:
        NNCFXError: of the class `error`; the tensor is in such a form.
    """
    # wrapper subclasses compute their numbers from inner tensors; sharded tensors are exempt
    if is_traceable_wrapper_subclass(tensor) and not is_sharded(tensor):
        library = type(tensor).__module__.partition(".")[0]
        raise error(
            f"{what} is of the class {type(tensor).__name__} of {library}, and only that knows "
            "what numbers it holds. Compress the model first, or quantize it by nncfx.quantize "
            "or nncfx.quantization.quantize_weights instead."
        )


def require_values(model: nn.Module, done: str, error: type[NNCFXError] = ArgumentError) -> None:
    """Refuse a `model` with a parameter or buffer on meta, where it has no values.

    Raises:
        NNCFXError: of the class `error`; the message names the tensor and says what to do.
    """
    for name, one in all_tensors(model).items():
        if one.is_meta:
            raise error(
                f"{type(model).__name__} cannot be {done}: '{name}' is on meta, where it has no "
                "values. Make it outside of torch.device('meta'), or call "
                "model.to_empty(device='cpu') and model.load_state_dict(state) first."
            )


def is_fully_sharded(kind: type[nn.Module]) -> bool:
    """Return whether modules of class `kind` are sharded by either version of FSDP."""
    return any(base.__module__.startswith(_FSDP) for base in kind.__mro__)


def is_dtensor(tensor: object) -> bool:
    """Return whether `tensor` is a DTensor, as FSDP2 and tensor parallelism create them."""
    return any(base.__name__ == "DTensor" for base in type(tensor).__mro__)


def is_fsdp2(kind: type[nn.Module]) -> bool:
    """Return whether modules of class `kind` are sharded by `fully_shard` (FSDP2)."""
    return any(
        base.__name__ == "FSDPModule" and base.__module__.startswith(_FSDP)
        for base in kind.__mro__
    )


def is_sharded(tensor: object) -> bool:
    """Return whether each process holds only a part of `tensor`."""
    # hasattr, because vars() would create a permanent dict for each tensor
    if isinstance(tensor, torch.Tensor) and hasattr(tensor, "ds_id"):  # DeepSpeed ZeRO 3
        return True
    if type(tensor) in _PLAIN:
        return False
    return any(base.__name__ in _SHARDED for base in type(tensor).__mro__)


def _peculiar(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a module that are not plain torch tensors with values, as most are."""
    for table in (module._parameters, module._buffers):  # noqa: SLF001 (as torch's own walk)
        for key, one in table.items():
            if one is None:
                continue
            if type(one) not in _PLAIN or one.is_meta or hasattr(one, "ds_id"):
                yield key, one


def is_offloaded(module: nn.Module) -> bool:
    """Return whether accelerate fetches the values of `module` when its forward is called."""
    hook: Any = vars(module).get(_HOOK)
    if hook is None:
        return False
    several = vars(hook).get("hooks", (hook,))
    return any(vars(one).get("offload", False) for one in several)
