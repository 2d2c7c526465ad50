"""Find the inputs of a model in the batches of a data loader."""

import inspect
import logging
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.network.network import NNCFNetwork
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.devices import device_of, on_device
from nncfx.tracing.calls.inputs import as_call
from nncfx.tracing.calls.tensors import tensors_in

_LOGGER = logging.getLogger(__name__)
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def inputs_in(batch: object, model: nn.Module) -> ExampleInputs:
    """Return the inputs in a batch, on the model's device; labels after them are left out.

    Args:
        batch: A tensor; a mapping of keyword inputs, or a mapping that is itself the only input
            if the forward has no such keywords; a dataclass, which is always the only input; a
            tuple that begins with all positional inputs, if the forward needs several or the
            model was wrapped with several; or any other tuple or list, for instance
            (input, label), whose first element is one of these or a tuple or list that is the
            only input (an annotation such as `list[Tensor]` says so where it is not clear); or a
            list of tensors that is the only input of a model that was wrapped with one, or that
            says so.
        model: The number of inputs is taken from its forward and from its example inputs.

    Raises:
        ArgumentError: the batch has none of these forms.
    """
    inputs: ExampleInputs = on_device(device_of(model), _inputs(batch, model))
    return inputs


def warn_unused_inputs(batch: object, model: nn.Module) -> None:
    """Warn about tensors after the inputs in `batch` that match further forward parameters.

    A tensor with one number per example is taken for labels without a warning.
    """
    if isinstance(model, torch.jit.ScriptModule) or not isinstance(batch, tuple | list):
        return
    if _is_only_input(batch, model):
        return
    parameters = inspect.signature(model.forward).parameters.values()
    names = [one.name for one in parameters if one.kind in _POSITIONAL]
    count = max(1, _positional_inputs(model))
    left_out = [
        (name, one)
        for name, one in zip(names[count:], batch[count:], strict=False)
        if isinstance(one, Tensor) and one.ndim > 1
    ]
    if left_out and all(isinstance(one, Tensor) for one in batch[:count]):
        named = [f"'{name}': ..." for name in names[: count + len(left_out)]]
        _LOGGER.warning(
            "In each batch, %s not used: what follows the inputs that a forward needs is taken "
            "for labels, and %s of %s keeps its default. If it is not a label, give mappings: "
            "{%s}.",
            " and ".join(f"the tensor of shape {tuple(one.shape)} is" for _, one in left_out),
            " and ".join(f"'{name}'" for name, _ in left_out),
            type(model).__name__,
            ", ".join(named),
        )


def _inputs(batch: object, model: nn.Module) -> object:
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, Mapping):
        return batch if _has_keywords(model, batch) else (batch,)
    if isinstance(batch, tuple | list) and batch and not _is_only_input(batch, model):
        count = _positional_inputs(model)
        if len(batch) >= count > 1 and isinstance(batch[0], Tensor):
            return tuple(batch[:count])
        if isinstance(batch[0], tuple | list):
            return batch[0] if _takes(model, batch[0]) else (batch[0],)
        return _inputs(batch[0], model)
    if tensors_in(batch):  # a dataclass, or a list that is the only input
        return (batch,)
    raise ArgumentError(
        f"A batch is or begins with a {type(batch).__name__}; it must be a tensor, a mapping of "
        "keyword inputs, a dataclass, or a tuple that begins with one of them. Map your loader to "
        "the inputs."
    )


def _has_keywords(model: nn.Module, names: Collection[str]) -> bool:
    """Return whether the forward takes these `names` as keywords, rather than one mapping."""
    if isinstance(model, torch.jit.ScriptModule):  # has no signature
        return True
    parameters = inspect.signature(model.forward).parameters
    is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    needed = _needed(model)
    return needed > 1 or (is_open and not needed) or not parameters.keys().isdisjoint(names)


def _takes(model: nn.Module, inputs: Sequence[object]) -> bool:
    """Return whether the forward takes `inputs` one by one, rather than as one tuple or list."""
    if isinstance(model, torch.jit.ScriptModule):
        return True
    is_nested = _is_nested(inputs)
    if isinstance(model, NNCFNetwork):
        known, _ = as_call(model.nncf.example_inputs)
        if len(known) == 1 and isinstance(known[0], tuple | list):
            return is_nested and not _is_nested(known[0])
    if not is_nested and _is_annotated_as_sequence(model):
        return False
    try:
        inspect.signature(model.forward).bind(*inputs)
    except TypeError:
        return False
    return True


def _is_only_input(batch: Sequence[object], model: nn.Module) -> bool:
    """Return whether a list or tuple of tensors is the first input, rather than begins with it."""
    is_list = all(isinstance(one, Tensor) for one in batch)
    if not is_list or isinstance(model, torch.jit.ScriptModule):
        return False
    if isinstance(model, NNCFNetwork):
        known, _ = as_call(model.nncf.example_inputs)
        return bool(known) and isinstance(known[0], tuple | list) and not _is_nested(known[0])
    return _is_annotated_as_sequence(model)


def _is_nested(inputs: Sequence[object]) -> bool:
    return any(isinstance(one, tuple | list) for one in inputs)


def _is_annotated_as_sequence(model: nn.Module) -> bool:
    """Return whether the forward says that its first input is a list or a tuple."""
    try:
        hints = typing.get_type_hints(model.forward)
    # names that only a type checker imports, or text that is no type
    except (NameError, AttributeError, TypeError, SyntaxError):
        return False
    first = hints.get(next(iter(inspect.signature(model.forward).parameters), ""))
    kind = typing.get_origin(first) or first
    return isinstance(kind, type) and issubclass(kind, Sequence)


def _needed(model: nn.Module) -> int:
    """Return how many positional inputs the forward needs."""
    parameters = inspect.signature(model.forward).parameters.values()
    return sum(
        one.kind in _POSITIONAL and one.default is inspect.Parameter.empty for one in parameters
    )


def _positional_inputs(model: nn.Module) -> int:
    """Return how many positional inputs the forward requires or the example inputs contain."""
    if isinstance(model, torch.jit.ScriptModule):  # has no signature
        return 1
    needed = _needed(model)
    if isinstance(model, NNCFNetwork):
        needed = max(needed, len(as_call(model.nncf.example_inputs)[0]))
    return needed
