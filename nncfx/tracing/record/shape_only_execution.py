"""Trace without computing contractions, which return tensors of the right shape.

A graph holds shapes, not values, and contractions take nearly all of a forward's time. If the
model reads a value after a contraction was skipped, the trace is aborted and repeated with values.
Contractions of what code makes itself are computed, as it may keep the results, such as tables of
positions, for later forwards.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import ref

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from nncfx.operators import ROWS, functions_of
from nncfx.tracing.calls.tensor_table import TensorTable
from nncfx.tracing.calls.tensors import replaced, tensors_in
from nncfx.tracing.record.parameter_writes import changes_its_first
from nncfx.tracing.record.uncomputed_results import UncomputedResults

C = TypeVar("C")

_CONTRACTIONS: Final = frozenset(
    function
    for one in ROWS
    if one.work == "contraction" or one.macs == "attention"
    for function in one.functions
)
"""Skipped functions, named as in addresses."""

_NORMS: Final = frozenset({F.batch_norm})
"""Functions that are skipped only because their input was not computed."""

_ACTIVATIONS: Final = frozenset(
    {
        *(F.relu, F.relu6, F.hardtanh, F.hardswish, F.hardsigmoid, F.silu, F.gelu),
        *(torch.sigmoid, torch.relu, torch.relu_),
    }
)
"""Elementwise functions whose output has the shape and dtype of their input."""

_ARITHMETIC: Final = functions_of("add", "sub", "mul")
"""Elementwise functions of two tensors, or of a tensor and a number."""

_READERS: Final = frozenset(
    {
        *("__array__", "__bool__", "__complex__", "__contains__", "__float__", "__format__"),
        *("__index__", "__int__", "__repr__", "allclose", "argwhere", "bincount", "equal"),
        *("is_nonzero", "item", "masked_select", "multinomial", "nonzero", "numpy", "one_hot"),
        *("tolist", "unique", "unique_consecutive"),
    }
)
"""Functions, named as in addresses, that pass values to Python or derive shapes from them."""

_WORTH_IT: Final = 2**16
"""Elements of all operands below which computing a contraction is as fast as skipping it."""

_WORTH_LITTLE: Final = 2**12
"""The same limit for functions whose shapes are computed here, without torch."""

_SHAPED: Final = frozenset({F.conv2d, F.linear, F.batch_norm})

_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})


class ValuesNeeded(BaseException):
    """The model read a value that was not computed.

    Not an `Exception`, so models do not catch it.
    """


class Invocation(NamedTuple):
    """A function call that is about to run.

    Attributes:
        func: The function.
        name: Its name in addresses.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        inputs: The tensors in both, in order.
    """

    func: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: Sequence[torch.Tensor]


class Shortcut:
    """Runs the functions of one forward, but computes only the shapes of contractions.

    Attributes:
        without_values: `id`s of the weights that have no values and are replaced by zeros. If
            there are any, only values computed from them must not be read.
    """

    def __init__(self, without_values: Collection[int] = ()) -> None:
        self.without_values = without_values
        self._derived = TensorTable[bool]()
        # what code makes without inputs and parameters; a plain dict, as every call looks here
        self._constants: dict[int, ref[torch.Tensor]] = {}
        self._has_skipped = False
        self._void = UncomputedResults(is_shared=not without_values)

    def own_inputs(self, call: C) -> C:
        """Return arguments of a model with tensors of their own, large images without values."""
        own: C = pytree.tree_map_only(torch.Tensor, self._own_input, call)
        return own

    def _own_input(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.without_values or not _is_image(tensor):
            return tensor.clone()
        self._has_skipped = True
        return self._void.new(tensor.shape, tensor.dtype, tensor.device)

    def run(self, call: Invocation) -> Any:
        """Return the result of the call, or a tensor of its shape without values.

        Raises:
            ValuesNeeded: the call needs values that were not computed.
        """
        inputs = call.inputs
        is_constant = not inputs or (
            id(inputs[0]) in self._constants and self._are_constant(inputs)
        )
        is_derived = False
        if known := self.without_values:
            is_derived = any(id(one) in known or one in self._derived for one in inputs)
            self._has_skipped = is_derived
        made = self._run(call, can_skip=not is_constant)
        if is_constant:
            for tensor in tensors_in(made):
                self._constants[id(tensor)] = ref(tensor)
        if is_derived:
            is_set = call.name == "__setitem__"
            for tensor in tensors_in((made, call.args[:1]) if is_set else made):
                self._derived[tensor] = True
        return made

    def _are_constant(self, inputs: Iterable[torch.Tensor]) -> bool:
        known = [(one, self._constants.get(id(one))) for one in inputs]
        return all(found is not None and found() is one for one, found in known)

    def _run(self, call: Invocation, *, can_skip: bool) -> Any:
        skipped = None
        if can_skip and call.name in _CONTRACTIONS and _can_skip(call):
            skipped = self._skipped(call)
        if skipped is not None:
            self._has_skipped = True
            return skipped
        if self._has_skipped:
            made = self._by_shape(call)
            if made is not None:
                return made
            if call.name in _READERS or _is_sized_by_values(call):
                raise ValuesNeeded
        return call.func(*call.args, **call.kwargs)

    def _by_shape(self, call: Invocation) -> torch.Tensor | None:
        """Return the uncomputed result of a function by its shape; None to leave it to torch."""
        func, inputs = call.func, call.inputs
        if func in _NORMS and _keeps_shape(call):
            return self._void.like(inputs[0])
        if func in _ACTIVATIONS and inputs[0] in self._void:
            is_in_place = changes_its_first(call.name, call.kwargs)
            return inputs[0] if is_in_place else self._void.like(inputs[0])
        if call.name in _ARITHMETIC and inputs[0] in self._void and _is_alike(call):
            return inputs[0] if changes_its_first(call.name) else self._void.like(inputs[0])
        is_joined = func is torch.cat and any(one in self._void for one in inputs)
        shape = _joined(*call.args, **call.kwargs) if is_joined else None
        if shape is None:
            return None
        return self._void.new(shape, inputs[0].dtype, inputs[0].device)

    def _skipped(self, call: Invocation) -> Any:
        """Return results of the right shape; None if torch cannot run the function on "meta"."""
        func, _, args, kwargs, inputs = call
        dtype, device = inputs[0].dtype, inputs[0].device
        shape = _convolved(*args, **kwargs) if func is F.conv2d else None
        if func is F.linear and inputs[0].shape[-1] == inputs[1].shape[-1]:
            # torch computes this shape in Python, which takes longer than a small product
            shape = (*inputs[0].shape[:-1], *inputs[1].shape[:-1])
        if shape is not None:
            return self._void.new(shape, dtype, device)
        shapes = replaced((args, dict(kwargs)), _shape_of)
        try:
            made = func(*shapes[0], **shapes[1])
        except RuntimeError:  # torch._grouped_mm supports only bfloat16 there
            return None
        return replaced(made, lambda one: self._void.on(device, one))


def _is_image(tensor: torch.Tensor) -> bool:
    """Return whether `tensor` is large and of the kind that contractions take, unlike words."""
    return (
        tensor.numel() >= _WORTH_IT
        and type(tensor) is torch.Tensor
        and tensor.device.type != "meta"
        and tensor.is_floating_point()
        and tensor.layout == torch.strided
        and tensor.is_contiguous()
        and not tensor.requires_grad
    )


def _convolved(
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *layout: Any,
    **named: Any,
) -> tuple[int, ...] | None:
    """Return the shape of a plain two-dimensional convolution; None to leave it to torch.

    Torch computes shapes in Python, which takes longer than a small convolution.
    """
    if named or len(layout) != len(_LAYOUT) or not all(map(isinstance, layout, _LAYOUT)):
        return None
    stride, padding, dilation, groups = layout
    images = data.dim() == weight.dim() == _IMAGES and data.is_contiguous()
    if not images or data.shape[1] != weight.shape[1] * groups or not weight.is_contiguous():
        return None
    if len(weight) % groups or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    sizes = [
        (size + 2 * pad - step * (kernel - 1) - 1) // by + 1
        for size, pad, step, kernel, by in zip(
            data.shape[2:], padding, dilation, weight.shape[2:], stride, strict=True
        )
    ]
    return (len(data), len(weight), *sizes) if min(sizes) > 0 else None


def _is_alike(call: Invocation) -> bool:
    """Return whether a sum or product has the shape, dtype and layout of its first tensor."""
    first, *others = call.inputs
    if len(call.args) != _PAIR or call.kwargs or first.numel() < _WORTH_LITTLE:
        return False
    if not others:
        return first.is_floating_point() and any(type(one) in (int, float) for one in call.args)
    (second,) = others
    if type(second) not in _PLAIN or second.dtype != first.dtype or second.device != first.device:
        return False
    if second.dim() > first.dim() or not (first.is_contiguous() and second.is_contiguous()):
        return False
    sizes = zip(reversed(second.shape), reversed(first.shape), strict=False)
    return all(mine in {1, its} for mine, its in sizes)


def _joined(tensors: Any, dim: Any = 0, **named: Any) -> list[int] | None:
    """Return the shape of a plain concatenation; None to leave it to torch, also if invalid."""
    first = tensors[0]
    if named or not isinstance(dim, int) or not -first.dim() <= dim < first.dim():
        return None
    plain = {(one.dtype, one.device, one.is_contiguous()) for one in tensors}
    others = {(*one.shape[:dim], *one.shape[dim:][1:]) for one in tensors}
    if len(plain) > 1 or len(others) > 1 or not first.is_contiguous():
        return None
    shape = list(first.shape)
    shape[dim] = sum(one.shape[dim] for one in tensors)
    return shape


_IMAGES: Final = 4
"""Axes of a batch of images."""

_PAIR: Final = 2
"""Operands of a sum or product."""

_LAYOUT: Final = (tuple, tuple, tuple, int)
"""The types of stride, padding, dilation and groups that `nn.Conv2d` passes."""


def _keeps_shape(call: Invocation) -> bool:
    """Return whether a batch norm is in evaluation mode and keeps shape and dtype.

    torch reports its arguments by name, however they were passed.
    """
    if call.kwargs.get("training") is not False or not _can_skip(call):
        return False
    data, *vectors = call.inputs
    width = data.shape[1:2]
    return all(one.shape == width and one.dtype == data.dtype for one in vectors)


def _can_skip(call: Invocation) -> bool:
    """Return whether the operands are large, plain tensors on one real device."""
    inputs = call.inputs
    least = _WORTH_LITTLE if call.func in _SHAPED else _WORTH_IT
    if sum([one.numel() for one in inputs]) < least:
        return False
    device = inputs[0].device
    for one in inputs:
        if type(one) not in _PLAIN or one.device != device or one.is_quantized:
            return False
        if one.layout != torch.strided:
            return False
    return (
        device.type != "meta"
        and not torch.is_autocast_enabled(device.type)
        and torch._C._functorch.maybe_current_level() is None  # noqa: SLF001 (no public question)
    )


def _shape_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _is_sized_by_values(call: Invocation) -> bool:
    """Return whether the shape of the result depends on the values of a mask or of counts."""
    name, args = call.name, call.args
    if name == "repeat_interleave":
        return not isinstance((*args[1:], call.kwargs.get("repeats"))[0], int)
    if name == "where":
        return len(args) == 1
    if name != "__getitem__":
        return False
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(
        isinstance(one, torch.Tensor) and one.dtype in {torch.bool, torch.uint8} for one in index
    )
