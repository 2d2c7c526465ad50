"""Prepare example inputs and their dynamic axes for the exporter."""

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.utils import _pytree as pytree

from nncfx.errors import ArgumentError, did_you_mean

Call = tuple[tuple[Any, ...], dict[str, Any]]
_OPTIONS: Final = inspect.Parameter.VAR_KEYWORD


def batch_size(call: Call) -> int:
    """Return the size of axis 0 of the first tensor among the arguments of `call`.

    Raises:
        ArgumentError: no argument is a tensor with an axis, or that axis is empty.
    """
    for leaf in pytree.tree_leaves(call):
        if isinstance(leaf, torch.Tensor) and leaf.ndim > 0:
            if leaf.shape[0] == 0:
                raise ArgumentError("example_inputs hold a batch of 0; give at least one example.")
            return leaf.shape[0]
    raise ArgumentError(
        "example_inputs hold no tensor with an axis that torch.export sees, so there is no batch "
        "to leave open. Pass dynamic_batch=False; where a dataclass holds the tensors, call "
        "torch.export.register_dataclass(its class) first."
    )


def batched_call(call: Call) -> tuple[Call, Call]:
    """Return `call` with at least two examples, and the batch axes of its arguments.

    Axis 0 of a tensor is the batch if it is as long as axis 0 of the first tensor. A batch of one
    is repeated, because torch.export treats a size of one as a constant.
    """
    size = batch_size(call)
    batch = torch.export.Dim("batch")

    def is_batched(leaf: object) -> bool:
        return isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and leaf.shape[0] == size

    def axes_of(leaf: object) -> Mapping[int, Any] | None:
        # never None for a tensor: inside a tuple, torch would take None for an axis
        if not isinstance(leaf, torch.Tensor):
            return None
        return {0: batch} if is_batched(leaf) else {}

    args, kwargs = pytree.tree_map(
        lambda leaf: torch.cat([leaf, leaf]) if size == 1 and is_batched(leaf) else leaf, call
    )
    axes = pytree.tree_map(axes_of, call)
    return (args, kwargs), axes


def opened(
    axes: Mapping[str, Any], arguments: Mapping[str, Any], wanted: Mapping[str, Mapping[int, str]]
) -> dict[str, Any]:
    """Return `axes` with the axes of `wanted` open as well, under their names.

    Args:
        axes: The axes that are open already, by argument.
        arguments: The example of each argument.
        wanted: A mapping from arguments to axes to names, like `dynamic_axes` of torch.onnx; if
            an argument holds several tensors, it applies to each.

    Raises:
        ArgumentError: an argument does not exist or holds no tensor, or an axis does not exist or
            has fewer than 2 elements, which torch.export treats as a constant.
    """
    found = dict(axes)
    for name, by_axis in wanted.items():
        value = arguments.get(name)
        inside = [one for one in pytree.tree_leaves(value) if isinstance(one, torch.Tensor)]
        if not inside:
            kind = f"is a {type(value).__name__}" if name in arguments else "is not an input"
            tensors = [key for key, one in arguments.items() if isinstance(one, torch.Tensor)]
            raise ArgumentError(
                f"dynamic_axes names '{name}', which {kind}. Tensors among the inputs: "
                f"{', '.join(tensors) or 'none'}.{did_you_mean(name, tensors)}"
            )
        for tensor in inside:
            _check_axes(name, tensor, by_axis)
        found[name] = pytree.tree_map(
            lambda leaf, own, by_axis=by_axis: _merged(leaf, own, by_axis), value, found.get(name)
        )
    return found


def _check_axes(name: str, tensor: torch.Tensor, by_axis: Mapping[int, str]) -> None:
    for axis in by_axis:
        if not -tensor.ndim <= axis < tensor.ndim or tensor.shape[axis] < 2:  # noqa: PLR2004 (as above)
            raise ArgumentError(
                f"dynamic_axes opens axis {axis} of '{name}', which is of shape "
                f"{tuple(tensor.shape)}. Open axes are at least 2 long in the example."
            )


def as_lists(axes: Any) -> Any:  # noqa: ANN401 (a tree of any shape)
    """Return `axes` with instances of registered classes as lists, as torch.export compares them.

    >>> as_lists({"image": ({0: "batch"}, None)})
    {'image': ({0: 'batch'}, None)}
    """
    own = [kind for kind in pytree.SUPPORTED_NODES if kind not in pytree.BUILTIN_TYPES]

    def listed(node: Any) -> Any:  # noqa: ANN401 (as above)
        flattened = pytree.SUPPORTED_NODES.get(type(node))
        if flattened is None:
            return node
        return [as_lists(one) for one in flattened.flatten_fn(node)[0]]

    return pytree.tree_map(listed, axes, is_leaf=lambda node: type(node) in own)


def _merged(
    leaf: object, axes: Mapping[int, Any] | None, by_axis: Mapping[int, str]
) -> Mapping[int, Any] | None:
    if not isinstance(leaf, torch.Tensor):
        return axes
    return {**(axes or {}), **{axis % leaf.ndim: one for axis, one in by_axis.items()}}


@contextlib.contextmanager
def named_options(model: nn.Module, call: Call) -> Iterator[None]:
    """Give the forward a named argument for each of the `**options` in `call` inside the block.

    torch.export (2.13) counts options twice if an axis is open: as one argument and by name.
    """
    forward = model.forward
    signature = inspect.signature(forward)
    known = [one for one in signature.parameters.values() if one.kind is not _OPTIONS]
    names = call[1].keys() - {one.name for one in known}
    if len(known) == len(signature.parameters) or not names:
        yield
        return

    @functools.wraps(forward)
    def named(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the forward)
        return forward(*args, **kwargs)

    added = (inspect.Parameter(one, inspect.Parameter.KEYWORD_ONLY) for one in call[1])
    own = [*known, *(one for one in added if one.name in names)]
    named.__signature__ = signature.replace(parameters=own)  # type: ignore[attr-defined]
    before = vars(model).get("forward")
    model.forward = named
    try:
        yield
    finally:
        del model.forward
        if before is not None:
            model.forward = before


def axes_by_argument(model: nn.Module, axes: Call) -> Mapping[str, Any]:
    """Return `axes`, structured like a call, by the names of the forward's arguments.

    The tensors that `*inputs` collects are one argument, a tuple.
    """
    args, kwargs = axes
    return inspect.signature(model.forward).bind(*args, **kwargs).arguments
