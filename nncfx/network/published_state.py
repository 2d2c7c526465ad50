"""The state that `save_pretrained` of a wrapped model writes, which a plain model can load.

The names of the model's weights hold the values its forward reads (masked, rounded, clustered).
The weights below the hooks are saved with the hooks' own tensors, so training can resume, as the
Trainer of transformers does from the files of `save_pretrained`.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, Protocol, runtime_checkable
from weakref import WeakSet

import torch
from torch import Tensor, nn

from nncfx.tracing.calls.tensors import own_tensors
from nncfx.tracing.hooks.hooked_reads import hooked_reads
from nncfx.tracing.hooks.sites import Insertion, WeightSite

_DENSE: Final = "_dense."
"""Prefix of the keys of weights below hooks, after the prefix of the hooks."""

_PUBLISHED: Final[ContextVar[object]] = ContextVar("nncfx_published", default=None)

_TOLD: Final[WeakSet[nn.Module]] = WeakSet()
"""Models already warned about; a trainer saves many times."""

_LOGGER = logging.getLogger(__name__)


@runtime_checkable
class WritesInPlace(Protocol):
    """A hook on a weight that can write its result over the weight, without a second tensor."""

    def write_to(self, weight: Tensor) -> None:
        """Replace `weight` by what the hook makes of it."""


def is_bakeable(insertion: Insertion) -> bool:
    """Return whether a plain module can compute what the hook does."""
    return isinstance(insertion.site, WeightSite) or isinstance(insertion.hook, nn.Identity)


def is_published(model: nn.Module) -> bool:
    """Return whether `save_pretrained` of `model` is running."""
    return _PUBLISHED.get() is model


def publishing(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return `own`, the `save_pretrained` of a class, extended for models with hooks."""

    @wraps(own)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        hooks: tuple[Insertion, ...] = self.nncf.hooks
        _tell(self, [one for one in hooks if not is_bakeable(one)])
        if kwargs.get("state_dict") is not None:
            kwargs["state_dict"] = publish(self, hooks, kwargs["state_dict"])
        token = _PUBLISHED.set(self)
        try:
            return own(self, *args, **kwargs)
        finally:
            _PUBLISHED.reset(token)

    return save_pretrained


def _tell(model: nn.Module, left: list[Insertion]) -> None:
    if left and model not in _TOLD:
        _TOLD.add(model)
        _LOGGER.warning(
            "save_pretrained writes the weights of %s compressed. A training goes on from there; "
            "a model that is read without nncfx lacks the hooks on activations (of %s), and "
            "computes something else. nncfx.integrations.pretrained.save_pretrained keeps them.",
            type(model).__name__,
            ", ".join(sorted({f"'{one.algorithm}'" for one in left})),
        )


def read_weights(
    model: nn.Module, hooks: Iterable[Insertion]
) -> dict[tuple[nn.Module, str], Tensor]:
    """Return the hooked weights, by the module that reads each and its name there."""
    hooks = list(hooks)
    sites = {one.site for one in hooks if isinstance(one.site, WeightSite)}
    modules = dict(model.named_modules(remove_duplicate=False))
    places = [(modules[site.module], site.name) for site in sites]
    with evaluating(one.hook for one in hooks), torch.no_grad(), hooked_reads():
        return {(module, name): getattr(module, name).detach() for module, name in places}


def baked_weights(
    model: nn.Module, hooks: Iterable[Insertion], *, inplace: bool = False
) -> Iterator[tuple[Tensor, list[tuple[tuple[str, str], Tensor]]]]:
    """Yield each hooked tensor with the values that each of its readers, (module, name), reads.

    The largest tensor comes first, while a copy that the caller builds is still small. The caller
    may write to a tensor once it was yielded, and should then clear its list to free the values
    before the next ones are computed.

    Args:
        model: The wrapped model.
        hooks: Its hooks.
        inplace: Whether a hook that can do so writes to the tensor, which is then its value.
    """
    hooks = list(hooks)
    modules = dict(nn.Module.named_modules(model))
    first = {id(module): path for path, module in modules.items()}
    every = dict(model.named_modules(remove_duplicate=False))
    sites: dict[tuple[str, str], list[nn.Module]] = {}
    for one in hooks:
        if isinstance(one.site, WeightSite):
            place = (first[id(every[one.site.module])], one.site.name)
            sites.setdefault(place, []).append(one.hook)
    places: dict[int, list[tuple[str, str]]] = {}
    sizes: dict[int, int] = {}
    for path, module in modules.items():
        for name, held in own_tensors(module).items():
            places.setdefault(id(held), []).append((path, name))
            sizes[id(held)] = held.numel()
    with evaluating(one.hook for one in hooks):
        for key in sorted(places, key=sizes.__getitem__, reverse=True):
            each = places[key]
            if sites.keys().isdisjoint(each):
                continue
            held = own_tensors(modules[each[0][0]])[each[0][1]]
            alone = sites[each[0]] if inplace and len(each) == 1 else []
            if len(alone) == 1 and isinstance(alone[0], WritesInPlace):
                with torch.no_grad():
                    alone[0].write_to(held)
                yield held, [(each[0], held.detach())]
                continue
            with torch.no_grad(), hooked_reads():
                read = [
                    (one, (getattr(modules[one[0]], one[1]) if one in sites else held).detach())
                    for one in each
                ]
            yield held, read


@contextmanager
def evaluating(hooks: Iterable[nn.Module]) -> Iterator[None]:
    """Put `hooks` in evaluation mode; on exit, restore their modes.

    Training effects of a hook, such as noise, must not be baked in.
    """
    hooks = list(hooks)
    modes = {one: one.training for hook in hooks for one in hook.modules()}
    try:
        for hook in hooks:
            hook.eval()
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def publish(
    model: nn.Module, hooks: Iterable[Insertion], state: Mapping[str, Any], prefix: str = ""
) -> dict[str, Any]:
    """Return `state` with weights as the forward reads them, plus the weights below the hooks.

    Args:
        model: The wrapped model.
        hooks: Its hooks.
        state: Its `state_dict`.
        prefix: Prefix of the keys of `state`.
    """
    read = read_weights(model, hooks)
    published = dict(state)
    names: dict[int, list[str]] = {}
    made: dict[int, list[Tensor]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, stored in own_tensors(module).items():
            key = f"{path}.{name}" if path else name
            names.setdefault(id(stored), []).append(key)
            value = read.get((module, name))
            if prefix + key not in state or value is None or torch.equal(value, stored.detach()):
                continue
            # tied weights that are read alike stay one tensor, as in files of plain models
            known = made.setdefault(id(stored), [])
            same = next((one for one in known if torch.equal(one, value)), None)
            if same is None:
                known.append(same := value.clone())
            published[prefix + key] = same
            dense = f"{prefix}_nncf.{_DENSE}{names[id(stored)][0]}"
            published.setdefault(dense, stored.detach().clone())
    return published


def restore(
    model: nn.Module, state: dict[str, Any], own: dict[str, Any], prefix: str, below: str
) -> None:
    """Replace published weights in `state` by the weights below hooks, where `own` has them.

    Args:
        model: The wrapped model.
        state: The state being loaded; changed in place.
        own: The entries whose keys begin with `below`; the weights are removed from it.
        prefix: Prefix of the keys of `state`.
        below: Prefix of the keys of hooks.
    """
    dense = {key: value for key, value in own.items() if key.startswith(below + _DENSE)}
    if not dense:
        return
    names: dict[int, list[str]] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, stored in own_tensors(module).items():
            names.setdefault(id(stored), []).append(f"{path}.{name}" if path else name)
    tied = {name: each for each in names.values() for name in each}
    for key, value in dense.items():
        name = key.removeprefix(below + _DENSE)
        if name in tied:
            del own[key]
            state.update({prefix + one: value for one in tied[name]})
