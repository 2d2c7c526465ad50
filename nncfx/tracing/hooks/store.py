"""The container of a model's hooks, saved under one prefix in the `state_dict`."""

from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import StorageError
from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.hooks.carried_state import CARRIED, CarriedState, StateOwner

STORE: Final = "_nncf"
"""The instance attribute, and the prefix of hook parameters in the `state_dict`."""


class _Group(nn.Module):
    """The hooks of one algorithm by site, with the carried state, if any."""

    def __init__(self, carried: CarriedState | None) -> None:
        super().__init__()
        self.carried = carried

    @override
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.carried is not None:
            destination[prefix + CARRIED] = self.carried.tensor()

    @override
    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        key = prefix + CARRIED
        tensors = {name: value for name, value in state_dict.items() if name != key}
        carried = self.carried
        if carried is not None and key in state_dict and not carried.is_blank(state_dict[key]):
            try:
                carried.take(state_dict[key])
            except StorageError as error:
                rest[-1].append(str(error))
        elif carried is not None and carried.owner is not None:
            # dense models, copies and files of earlier releases have no carried state
            carried.is_behind |= self._differs(tensors, prefix)
        super()._load_from_state_dict(tensors, prefix, *rest)

    def _differs(self, state_dict: dict[str, Any], prefix: str) -> bool:
        own = self.state_dict(prefix=prefix, keep_vars=True)
        both = ((one, state_dict[key]) for key, one in own.items() if key in state_dict)
        return not all(_are_same([one, new]) for one, new in both)


class HookStore(nn.Module):
    """All committed hooks, named `<algorithm>.<site>`, never by position."""

    def __init__(self) -> None:
        super().__init__()
        self._carried: dict[str, CarriedState] = {}

    def carry(self, algorithm: str, owner: StateOwner) -> CarriedState:
        """Save the state of `owner` with the hooks of `algorithm`, if there are any."""
        made = self._carried[algorithm] = CarriedState(owner)
        group = _children(self).get(algorithm)
        if isinstance(group, _Group):
            group.carried = made
        return made

    def carried_names(self) -> Iterator[str]:
        """Yield the keys of carried states, whether or not there is a state now."""
        yield from (f"{algorithm}.{CARRIED}" for algorithm in _children(self))

    def put(self, algorithm: str, site: str, hook: nn.Module) -> None:
        """Add `hook`; a second hook of an algorithm at a site is named `<site>#1`, and so on."""
        groups = dict(self.named_children())
        if algorithm not in groups:
            groups[algorithm] = _Group(self._carried.get(algorithm))
            self.add_module(algorithm, groups[algorithm])
        group = groups[algorithm]
        taken = sum(name.partition("#")[0] == site for name in _children(group))
        group.add_module(f"{site}#{taken}" if taken else site, hook)

    def clear(self) -> None:
        """Remove all hooks."""
        for name in list(_children(self)):
            delattr(self, name)

    @property
    def is_empty(self) -> bool:
        """Whether there are no hooks."""
        return not _children(self)

    def further_names(self) -> dict[str, str]:
        """Return the duplicate keys of tensors, each with the first key of its tensor.

        A hook at several sites, such as the quantizer of the input of query, key and value, is
        saved under the keys of its first site only, because files hold each tensor once.
        """
        first: dict[tuple[int, str], str] = {}
        further: dict[str, str] = {}
        for path, module in self.named_modules(remove_duplicate=False):
            for name, one in _state_of(module):
                key = f"{path}.{name}"
                known = first.setdefault(one, key)
                if known != key:
                    further[key] = known
        return further

    def described(self, prefix: str, memo: set[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
        """Yield the hooks' `named_modules` below `prefix`, each once; nothing without hooks.

        `torch.func.functional_call` does not restore the tensors of a module with two names.
        """
        if not self.is_empty:
            below = f"{prefix}.{STORE}" if prefix else STORE
            yield from self.named_modules(memo, below)


def _state_of(module: nn.Module) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield the keys that `module` itself adds to a `state_dict`, each with an identity."""
    hidden = module._non_persistent_buffers_set  # noqa: SLF001 (no public way)
    for name, tensor in own_tensors(module).items():
        if name not in hidden:
            yield name, (id(tensor), "")
    if type(module).get_extra_state is not nn.Module.get_extra_state:
        yield CARRIED, (id(module), CARRIED)


def _children(module: nn.Module) -> dict[str, nn.Module | None]:
    # named_children lists a hook at two sites only once
    return module._modules  # noqa: SLF001 (no public way)


def own_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of the model itself, each once, without those of hooks."""
    return [one for name, one in model.named_parameters() if STORE not in name.split(".")]


def load_store(  # noqa: PLR0913, PLR0917 (the arguments of nn.Module._load_from_state_dict)
    store: HookStore,
    state_dict: dict[str, Any],
    prefix: str,
    metadata: dict[str, Any],
    missing_keys: list[str],
    unexpected_keys: list[str],
    error_msgs: list[str],
) -> None:
    """Load the hooks of `store`, as `load_state_dict` does for a model's children.

    A tensor is found under any of its names, since files of earlier releases contain all.
    """
    further = {
        f"{prefix}{one}": f"{prefix}{first}" for one, first in store.further_names().items()
    }
    own = dict(state_dict)
    for key, first in further.items():
        given = [own[name] for name in (first, key) if name in own]
        own |= dict.fromkeys((first, key), given[0]) if given else {}
        if not _are_same(given):
            error_msgs.append(
                f"'{key}' and '{first}' are one tensor in this model, and two that differ in the "
                "state. Quantize the model as the one that was saved."
            )
    absent: list[str] = []
    _load(store, own, prefix, (metadata, True, absent, unexpected_keys, error_msgs))
    missing_keys += [key for key in absent if key not in further]


def _are_same(values: list[Any]) -> bool:
    tensors = [one for one in values if isinstance(one, Tensor) and not one.is_meta]
    return all(torch.equal(one.to(tensors[0]), tensors[0]) for one in tensors[1:])


def _load(
    module: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    rest: tuple[dict[str, Any], bool, list[str], list[str], list[str]],
) -> None:
    module._load_from_state_dict(state_dict, prefix, *rest)  # noqa: SLF001 (torch loads children so)
    for name, child in list(_children(module).items()):
        if child is not None:
            below = f"{prefix}{name}."
            own = {key: value for key, value in state_dict.items() if key.startswith(below)}
            _load(child, own, below, rest)
