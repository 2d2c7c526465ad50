"""Grids of channel ids, which are integer tensors with the shape of an activation.

An id names a channel; `NO_CHANNEL` marks elements of no channel (padding, constants). Axes along
which ids do not change are expanded (stride 0), so a grid takes a few bytes however large the
activation is.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch

from nncfx.graph.union_find import Ids

NO_CHANNEL: Final = -1


def no_channels(shape: Sequence[int]) -> torch.Tensor:
    """Return a compact grid of `shape` whose elements belong to no channel."""
    return torch.tensor(NO_CHANNEL, device="cpu").expand(tuple(shape))


def varying_axes(grid: torch.Tensor) -> tuple[int, ...]:
    """Return the axes of a compact grid along which ids change."""
    return _varying(grid.shape, grid.stride())


@lru_cache
def _varying(shape: torch.Size, strides: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([axis for axis in range(len(shape)) if shape[axis] > 1 and strides[axis]])


def narrowed(grid: torch.Tensor) -> torch.Tensor:
    """Return the grid with size 1 on every expanded axis."""
    shape, strides = grid.shape, grid.stride()
    small = [size if stride else min(size, 1) for size, stride in zip(shape, strides, strict=True)]
    return grid if len(small) == 0 or small == list(shape) else grid.as_strided(small, strides)


def compact(grid: torch.Tensor) -> torch.Tensor:
    """Return an equal grid, expanded on every axis along which ids do not change."""
    if grid.numel() == 0 or grid.dim() == 0:
        return grid
    small = narrowed(grid)
    every = small.numpy()
    ids, start = every, (0,) * grid.dim()
    for axis in varying_axes(small):
        second = (*start[:axis], 1, *start[axis + 1 :])
        if ids[start] != ids[second]:  # the usual case if ids change at all
            continue
        first = ids[(slice(None),) * axis + (slice(0, 1),)]
        if (ids == first).all():
            ids = first
    if ids is every and small.is_contiguous():
        return grid
    return torch.from_numpy(np.ascontiguousarray(ids)).expand(grid.shape)


def along(ids: Ids, axis: int, shape: Sequence[int]) -> torch.Tensor:
    """Return a compact grid of `shape` whose ids run along `axis` (may be negative)."""
    strides = [0] * len(shape)
    # comparing the ends is usually enough
    if len(ids) and (ids[0] != ids[-1] or np.count_nonzero(ids != ids[0])):
        strides[axis] = 1
    return torch.from_numpy(np.ascontiguousarray(ids)).as_strided(tuple(shape), strides)


def sequence(grid: torch.Tensor, axis: int) -> Ids | None:
    """Return the ids along `axis`, or None if they change along another axis too.

    Also None for an empty tensor, which holds no ids.
    """
    axis %= grid.dim()
    others = (size for index, size in enumerate(grid.shape) if index != axis)
    if varying_axes(grid) not in ((), (axis,)) or 0 in others:
        return None
    index: list[Any] = [0] * grid.dim()
    index[axis] = slice(None)
    ids: Ids = grid.numpy()[tuple(index)]
    return ids


def spread(grid: torch.Tensor, shape: Sequence[int]) -> torch.Tensor | None:
    """Return the grid on `shape`, whose sizes may differ only on axes where ids do not change.

    None if ids change along an axis whose size differs, or if the number of axes differs.
    """
    if grid.dim() != len(shape):
        return None
    if any(grid.shape[axis] != shape[axis] for axis in varying_axes(grid)):
        return None
    return narrowed(grid).expand(tuple(shape))


def same_channels(grid: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether both grids hold the same channels in the same order of first appearance.

    A channel may be repeated; a flatten contains each channel once per pixel.
    """
    return np.array_equal(in_order(grid), in_order(other))


def in_order(grid: torch.Tensor) -> Ids:
    """Return each id of a grid once, in order of first appearance."""
    found, first = np.unique(narrowed(grid).reshape(-1).numpy(), return_index=True)
    ids: Ids = found[np.argsort(first)]
    return ids


def is_broadcast(grid: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether `grid` is broadcast along an axis of the channels of `other`."""
    return any(grid.shape[axis] == 1 for axis in varying_axes(other))


def lifted(grid: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the grid with at least `dim` axes; new axes come first and have size 1."""
    new = dim - grid.dim()
    return grid.reshape((1,) * new + tuple(grid.shape)) if new > 0 else grid
