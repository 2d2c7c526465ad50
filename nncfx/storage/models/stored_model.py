"""A model in a file of either format, and functions that load it into a model."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from nncfx.errors import StorageError
from nncfx.storage.models.model_state import model_state
from nncfx.storage.models.torch_bits import DTYPES

_LISTED = 5


class StoredTensor(NamedTuple):
    """The format, by safetensors name, and the shape of a tensor as a model receives it."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredModel:
    """A model in a file.

    Attributes:
        tensors: The tensors by every `state_dict` key; integers are listed as their floats.
        read: Returns all tensors, as floats.
        sizes: Module name to size attribute to value.
        structure: The changes to a fresh model that make the tensors fit, from `nncfx.thinning`.
    """

    tensors: Mapping[str, StoredTensor]
    read: Callable[[], dict[str, Tensor]]
    sizes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    structure: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors by name."""
        return {name: one.shape for name, one in self.tensors.items()}


def check_fit(
    stored: StoredModel,
    model: nn.Module,
    *,
    absent: Collection[str] = (),
    surplus: Collection[str] = (),
) -> None:
    """Check that `model` has the tensors of a file, none of them smaller.

    Keys in `absent` need not be in the file. Keys in `surplus` can be missing in the model, or
    have another shape.

    Raises:
        StorageError: They do not fit; the message lists missing, unexpected and reshaped tensors.
    """
    state = model_state(model, keep_vars=True)
    missing = sorted(set(state) - set(stored.tensors) - set(absent))
    unexpected = sorted(set(stored.tensors) - set(state) - set(surplus))
    reshaped = [
        f"{name} (file {one.dtype} {one.shape}, model {_described(state[name])})"
        for name, one in stored.tensors.items()
        if name in state and name not in surplus and not _fits(one, state[name])
    ]
    faults = {"missing in the file": missing, "unexpected": unexpected, "reshaped": reshaped}
    if any(faults.values()):
        listed = "; ".join(
            f"{fault}: {', '.join(names[:_LISTED])}{' ...' * (len(names) > _LISTED)}"
            f" ({len(names)})"
            for fault, names in faults.items()
            if names
        )
        raise StorageError(
            f"The file is of another model than this {type(model).__name__}: {listed}. "
            f"Build the model as it was before it was compressed."
        )


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return type(value).__name__


def _fits(stored: StoredTensor, value: object) -> bool:
    if not isinstance(value, Tensor):
        return False
    theirs, mine = DTYPES[stored.dtype], value.dtype
    kinds = mine.is_floating_point == theirs.is_floating_point
    kinds = kinds and mine.is_complex == theirs.is_complex
    return (
        kinds
        and len(stored.shape) == value.dim()
        and all(new <= old for new, old in zip(stored.shape, value.shape, strict=True))
    )


def fill(model: nn.Module, tensors: Mapping[str, Tensor], dtype: torch.dtype | None) -> None:
    """Copy `tensors` into the tensors of `model`, which take over their dtype, not their device.

    Names and shapes must match; tensors that the model lacks are ignored. Floating tensors are
    cast to `dtype` if that is not None. A parameter that modules share is split if `tensors`
    differ, because a parameter compressed by the hooks of only one module is two in the file.

    Raises:
        StorageError: The model does not accept the tensors.
    """
    state = model_state(model, keep_vars=True)
    tensors = {name: one for name, one in tensors.items() if name in state}
    if _untied(model, state, tensors):
        state = model_state(model, keep_vars=True)
    if dtype is not None:
        tensors = {k: v.to(dtype) if v.is_floating_point() else v for k, v in tensors.items()}
    for name, value in tensors.items():
        if state[name].dtype != value.dtype:
            state[name].grad = None
            state[name].data = torch.empty_like(state[name], dtype=value.dtype)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise StorageError(f"{type(model).__name__} refuses its own state: {error}") from error


def _untied(model: nn.Module, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> bool:
    """Split shared parameters whose `tensors` differ; return whether there were any."""
    names: dict[int, list[str]] = {}
    for name in tensors:
        if isinstance(state[name], nn.Parameter):
            names.setdefault(id(state[name]), []).append(name)
    shared = [each for each in names.values() if len(each) > 1]
    modules = dict(model.named_modules(remove_duplicate=False)) if shared else {}
    found = False
    for first, *others in shared:
        made = {first: state[first]}
        for name in others:
            same = next((one for one in made if _equal(tensors[one], tensors[name])), None)
            if same == first:
                continue
            address, _, own = name.rpartition(".")
            if modules[address] is modules[first.rpartition(".")[0]]:
                raise StorageError(
                    f"The file holds two tensors, {first!r} and {name!r}, which are one of this "
                    f"{type(model).__name__}. Build the model as it was before it was compressed."
                )
            if same is None:
                held = state[name]
                made[name] = nn.Parameter(torch.empty_like(held), requires_grad=held.requires_grad)
            setattr(modules[address], own, made[same or name])
            # the memory can belong to another of these tensors, which would be overwritten
            state[first].data = torch.empty_like(state[first])
            found = True
    return found


def _equal(one: Tensor, other: Tensor) -> bool:
    return one is other or torch.equal(one, other)


@contextmanager
def restored_on_error(model: nn.Module) -> Iterator[None]:
    """Restore modules, classes and tables of tensors if the body fails.

    Values that were written into a tensor stay; tensors whose memory was replaced get their own
    memory back.
    """
    modules = list(model.modules())
    attributes = [dict(vars(one)) for one in modules]
    tables = [
        {name: dict(value) for name, value in each.items() if isinstance(value, dict)}
        for each in attributes
    ]
    classes = [type(one) for one in modules]
    tensors = [
        (one, one.data, one.grad)
        for one in (*model.parameters(), *model.buffers())
        if not nn.parameter.is_lazy(one)
    ]
    try:
        yield
    except BaseException:
        for module, kind, own, held in zip(modules, classes, attributes, tables, strict=True):
            module.__class__ = kind
            vars(module).clear()
            vars(module).update(own)
            for name, content in held.items():
                own[name].clear()
                own[name].update(content)
        for tensor, data, grad in tensors:
            tensor.data, tensor.grad = data, grad
        raise
