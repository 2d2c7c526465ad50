"""Compute an einsum as a matrix product, the only form with integer kernels in runtimes."""

from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from nncfx.graph.einsum import MatrixProduct, matrix_product


def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """Return the result of `torch.einsum`, computed by `torch.matmul` if it is a matrix product.

    Axes are transposed. If several axes are summed, or several are outputs of one matrix, they
    are merged before the product and split after it.
    """
    tensors = [one for each in operands for one in ([each] if isinstance(each, Tensor) else each)]
    product = matrix_product(equation, [one.ndim for one in tensors])
    if product is None or _repeats(product, tensors):
        return torch.einsum(equation, *operands)
    first, second = tensors
    # without a batch, the axes of the left matrix before the last need not be merged
    ahead, rows = (product.batch, product.left) if product.batch else (product.left, None)
    groups = (product.summed,) if rows is None else (rows, product.summed)
    left = _joined(first, product.operands[0], (ahead, *groups))
    right = _joined(second, product.operands[1], (product.batch, product.summed, product.right))
    result = left @ right
    sizes = _sizes(product, tensors)
    outputs = (product.right,) if rows is None else (rows, product.right)
    parts = [sizes[one] for group in outputs for one in group]
    if any(len(group) != 1 for group in outputs):
        result = result.reshape((*result.shape[: len(ahead)], *parts))
    return _ordered(result, (*ahead, *chain(*outputs)), product.output)


def _repeats(product: MatrixProduct, tensors: Sequence[Tensor]) -> bool:
    """Return whether an axis of length 1 is broadcast to a longer axis of the other operand."""
    sizes = [
        dict(zip(indices, one.shape, strict=True))
        for indices, one in zip(product.operands, tensors, strict=True)
    ]
    shared = [(sizes[0][one], sizes[1][one]) for one in (*product.batch, *product.summed)]
    return any(type(a) is type(b) is int and a != b for a, b in shared)


def _sizes(product: MatrixProduct, tensors: Sequence[Tensor]) -> dict[str, int]:
    pairs = zip(product.operands, tensors, strict=True)
    return {
        name: size for names, one in pairs for name, size in zip(names, one.shape, strict=True)
    }


def _joined(x: Tensor, indices: Sequence[str], groups: Sequence[tuple[str, ...]]) -> Tensor:
    """Return `x` with axes in the order of `groups`, each group but the first merged into one."""
    apart, *joined = groups
    x = _ordered(x, indices, (*apart, *chain(*joined)))
    for place, group in enumerate(joined, start=len(apart)):
        if len(group) != 1:
            x = x.flatten(place, place + len(group) - 1) if group else x.unsqueeze(place)
    return x


def _ordered(x: Tensor, indices: Sequence[str], wanted: Sequence[str]) -> Tensor:
    order = [indices.index(one) for one in wanted]
    return x if order == sorted(order) else x.permute(order)
