"""Bake the compression into a plain copy of a model: `strip`."""

import torch
from torch import Tensor, nn

from nncfx.errors import TracingError
from nncfx.network.network import STATE, NNCFNetwork
from nncfx.network.published_state import baked_weights, is_bakeable, read_weights
from nncfx.network.wrapping import unwrap
from nncfx.storage.models.sharded_models import has_shards
from nncfx.tracing.calls.model_copy import copy_of, own_model
from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.hooks.sites import WeightSite
from nncfx.tracing.hooks.store import STORE


def is_strippable(model: NNCFNetwork) -> bool:
    """Return whether a plain module can compute what `model` does."""
    return all(is_bakeable(one) for one in model.nncf.hooks)


def strip(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Return a copy of `model` that computes the same without nncfx: no hook, no dynamic class.

    Hooked weights become the weights. A weight that several modules share stays shared if all of
    them read the same values, and is split if not. `model` is unchanged; the copy is in the same
    mode.

    Args:
        model: a wrapped model.
        inplace: bake into `model` itself, one tensor at a time, and return it; no second model
            is kept in memory. The weights below the hooks are lost.

    Raises:
        TracingError: `model` is not wrapped, is sharded or offloaded, or a hook stands at an
            activation and is not an `nn.Identity`: a plain module has no place for it.
    """
    if not isinstance(model, NNCFNetwork):
        raise TracingError(
            f"{type(model).__name__} is not wrapped, so there is nothing to strip. "
            "Pass the model that nncfx.wrap returned."
        )
    check_strippable(model)
    if has_shards(model):
        return strip(own_model(model, inplace=inplace), inplace=True)
    baked: dict[int, Tensor] = {}
    split: dict[tuple[str, str], Tensor] = {}
    for held, values in baked_weights(model, model.nncf.hooks, inplace=inplace):
        merged = _merged(held, values, inplace=inplace)
        values.clear()  # frees them before the next values are computed
        baked[id(held)] = next(iter(merged.values()))
        split.update(merged)
    plain = model if inplace else _copy_without_hooks(model, baked)
    unwrap(plain)
    for (path, name), tensor in split.items():
        module = plain.get_submodule(path)
        if own_tensors(module)[name] is not tensor:
            setattr(module, name, tensor)
    return plain


def check_strippable(model: NNCFNetwork) -> None:
    """Raise an error if no plain module can compute what `model` does.

    Raises:
        TracingError: a hook stands at an activation and is not an `nn.Identity`.
    """
    for insertion in model.nncf.hooks:
        if not is_bakeable(insertion):
            raise TracingError(
                f"The hook {type(insertion.hook).__name__} of '{insertion.algorithm}' at "
                f"'{insertion.site}' changes an activation and cannot be baked into a parameter. "
                "controller.strip() gives a copy of the controller's own model that keeps it; "
                "for an average of its weights, load the average's state_dict into that model "
                "first. For any copy, nncfx.thin(model).model and nncfx.storage.save keep "
                "quantizers, export_onnx takes it as it is, and "
                f"model.nncf.remove('{insertion.algorithm}') takes the hook away."
            )


def _merged(
    held: Tensor, values: list[tuple[tuple[str, str], Tensor]], *, inplace: bool
) -> dict[tuple[str, str], Tensor]:
    """Return the new tensor for each reader of `held`; readers of equal values share one."""
    found: dict[tuple[str, str], Tensor] = {}
    made: list[Tensor] = []
    for place, value in values:
        same = next((one for one in made if torch.equal(one, value)), None)
        if same is None:
            same = _written(held, value) if inplace and not made else _like(held, value)
            made.append(same)
        found[place] = same
    return found


def _copy_without_hooks(model: NNCFNetwork, baked: dict[int, Tensor]) -> NNCFNetwork:
    """Return a copy of `model` that shares its hooks and holds the `baked` tensors, by `id`."""
    shared = [*(one.hook for one in model.nncf.hooks), vars(model)[STORE], vars(model)[STATE]]
    return copy_of(model, {**baked, **{id(one): one for one in shared}})


def _written(held: Tensor, value: Tensor) -> Tensor:
    if held.shape == value.shape and held.dtype == value.dtype:
        with torch.no_grad():
            held.copy_(value)
    else:
        held.data = value
    return held


def bake(model: NNCFNetwork, *, but: tuple[type[nn.Module], ...] = ()) -> NNCFNetwork:
    """Return a wrapped copy of `model` in which hooks on weights are baked into the weights.

    Hooks that change activations and hooks of the types `but` stay, and so do weight hooks of
    the same or a later priority: a quantizer stays whole, and a mask before it is baked in. Each
    `nn.Identity` is removed, and the remaining hooks' parameters no longer require gradients.
    `model` is unchanged; the copy is in the same mode.
    """
    copied = copy_of(model)
    hooks = copied.nncf.hooks
    kept = [one for one in hooks if not is_bakeable(one) or isinstance(one.hook, but)]
    last = min((one.priority for one in kept), default=None)
    passing = [one for one in hooks if last is None or one.priority < last]
    staying = [
        one for one in hooks if one not in passing and not isinstance(one.hook, nn.Identity)
    ]
    for algorithm in {one.algorithm for one in hooks}:
        copied.nncf.remove(algorithm)
    with copied.nncf.register(one for one in passing if isinstance(one.site, WeightSite)):
        copied.nncf.commit()
        read = read_weights(copied, copied.nncf.hooks)
    _bake(read, copied)
    for one in staying:
        one.hook.requires_grad_(requires_grad=False)
    copied.nncf.register(staying)
    copied.nncf.commit()
    return copied


def _bake(values: dict[tuple[nn.Module, str], Tensor], model: nn.Module) -> None:
    """Store `values` where they were read; readers of one tensor share equal values."""
    readers: dict[int, list[tuple[nn.Module, str]]] = {}
    held: dict[int, Tensor] = {}
    for module in model.modules():
        for name, tensor in own_tensors(module).items():
            readers.setdefault(id(tensor), []).append((module, name))
            held[id(tensor)] = tensor
    for key, places in readers.items():
        baked: list[Tensor] = []
        for module, name in places:
            value = values.get((module, name), held[key].detach())
            same = next((one for one in baked if torch.equal(one, value)), None)
            if same is None:
                same = _like(held[key], value)
                baked.append(same)
            setattr(module, name, same)


def _like(stored: Tensor, value: Tensor) -> Tensor:
    if not isinstance(stored, nn.Parameter):
        return value.clone()
    return nn.Parameter(value.clone(), requires_grad=stored.requires_grad)
