"""Hooks on weights, implemented as class properties.

No function is intercepted: `self.weight` of a module with a hooked weight is a property of its
dynamic class. While a forward runs, it returns `self._parameters["weight"]` with hooks applied;
elsewhere it returns the parameter itself. The parameter stays registered under its name.
"""

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import nn

from nncfx.errors import TracingError
from nncfx.storage.models.sharded_models import like_shards, whole
from nncfx.storage.models.whole_models import is_dtensor, is_offloaded, sharding_fix
from nncfx.tracing.hooks.activation_hooks import uncounted
from nncfx.tracing.hooks.chain import carried
from nncfx.tracing.hooks.hooked_reads import are_hooked

_FLAT: Final = "_flat_weights"


def weight_attribute(name: str) -> str:
    """Return the instance attribute that holds the hooks on the parameter or buffer `name`."""
    return f"_nncf_weight_{name}"


def weight_properties(original: type[nn.Module], names: Iterable[str]) -> dict[str, Any]:
    """Return class attributes for a subclass of `original` that reads `names` through hooks."""
    properties: dict[str, Any] = {name: _hooked(name) for name in names}
    if issubclass(original, nn.RNNBase):
        # recurrent modules read their weights through one list
        properties[_FLAT] = property(_flat_weights, _set_flat_weights)
        properties["_weights_have_changed"] = _never_stale
    return properties


def _hooked(name: str) -> property:
    attribute = weight_attribute(name)

    def read(self: nn.Module) -> Any:
        table: dict[str, Any] = self._parameters if name in self._parameters else self._buffers
        if name not in table:
            raise AttributeError(name)
        stored = table[name]
        if not are_hooked() or (stored.is_meta and is_offloaded(self)):
            return stored
        # hooks get the whole weight, whatever its placements; compilers trace plain tensors only
        if not torch.compiler.is_compiling() and is_dtensor(stored):
            return like_shards(uncounted(carried, self, attribute, whole(stored)), stored)
        result = uncounted(carried, self, attribute, stored)
        if result is not stored and not torch.compiler.is_dynamo_compiling():
            # keep attributes that a forward reads, such as muP's `infshape`, but not over those
            # of a tensor subclass
            vars(result).update(vars(stored) | vars(result))
        return result

    def write(self: nn.Module, value: Any) -> None:
        # torch handles parameters and None, so this is a computed tensor
        del value
        raise_replacing(self, name)

    return property(read, write)


def raise_replacing(module: nn.Module, name: str) -> None:
    """Raise an error that the parameter `name` of `module` must stay a parameter."""
    raise TracingError(
        f"'{name}' of this {type(module).__name__} can be neither deleted nor computed from other "
        "tensors, now that nncfx has wrapped it. Apply parametrizations, weight norm and torch's "
        "pruning before nncfx.wrap, or to what nncfx.strip(model) returns. FSDP cannot shard it: "
        f"{sharding_fix[0].lower()}{sharding_fix[1:]}"
    )


def _flat_weights(self: nn.RNNBase) -> list[torch.Tensor]:
    return [getattr(self, name) for name in self._flat_weights_names]


def _set_flat_weights(self: nn.RNNBase, weights: list[torch.Tensor | None]) -> None:
    # torch keeps this list in addition to the parameters. Hooked reads use the parameters; the
    # list is kept for after the hooks are removed, and never holds hooked values
    kept = self._parameters
    names = self._flat_weights_names
    self.__dict__[_FLAT] = [kept.get(name) for name in names] if names else weights


def _never_stale(self: nn.RNNBase) -> bool:
    del self
    return False
