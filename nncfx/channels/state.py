"""The state of every tensor while a trace follows channels."""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from nncfx.channels.constraints import ChannelLedger
from nncfx.channels.ids import (
    NO_CHANNEL,
    along,
    compact,
    is_broadcast,
    lifted,
    narrowed,
    no_channels,
    sequence,
    varying_axes,
)
from nncfx.channels.source import Source, first_of_run, is_stack
from nncfx.graph.channels import Role
from nncfx.graph.union_find import Ids
from nncfx.tracing.calls.tensor_table import TensorTable

_LEFT = "would divide what is left by the number in its code"


@dataclass(frozen=True, eq=False)
class Split:
    """A call in which code lays out channels over axes and passes their sizes.

    Attributes:
        grid: the ids of the result.
        place: the address of the call.
        free: axes whose size follows from the others (a `-1`).
        widths: the module integer, (module, attribute), that gives the size, by axis.
        literals: axes whose size is set only in code.
    """

    grid: torch.Tensor
    place: str
    free: tuple[int, ...] = ()
    widths: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    literals: tuple[int, ...] = ()


@dataclass(eq=False)
class ChannelState:
    """The grids of ids of activations, the sources of moved parameters, and the ledger.

    Attributes:
        ledger: the constraints on channels.
        names: the name of every parameter and buffer, by `id`.
        living: whether statistics over channels cover only living channels.
        calls: the number of calls so far that compute statistics over an axis.
    """

    ledger: ChannelLedger = field(default_factory=ChannelLedger)
    names: Mapping[int, str] = field(default_factory=dict)
    living: bool = False
    calls: int = 0
    _splits: list[Split] = field(default_factory=list)
    _grids: TensorTable[torch.Tensor] = field(default_factory=TensorTable)
    _sources: TensorTable[Source] = field(default_factory=TensorTable)
    _conditions: TensorTable[tuple[torch.Tensor, str]] = field(default_factory=TensorTable)

    def grid(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return the ids of an activation; None for a tensor that carries no channels."""
        found = self._grids.get(tensor)
        return None if found is None else self._united(found)

    def ids(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the ids of a tensor, which are all `NO_CHANNEL` for a constant."""
        found = self.grid(tensor)
        return no_channels(tensor.shape) if found is None else found

    def set_grid(self, tensor: torch.Tensor, grid: torch.Tensor) -> None:
        """Set the ids of an activation."""
        self._grids[tensor] = compact(grid)

    def lay(self, tensor: torch.Tensor, ids: Ids, axis: int) -> None:
        """Set the channels of an activation to `ids` along `axis` (may be negative)."""
        self._grids[tensor] = along(ids, axis, tensor.shape)

    def keep_grid(self, tensor: torch.Tensor, grid: torch.Tensor) -> None:
        """Set the ids of an activation to an already compact grid of another activation."""
        self._grids[tensor] = grid

    def set_fixed(self, tensor: torch.Tensor, reason: str) -> None:
        """Record that an activation is not followed and must stay, with the reason."""
        ident = self.ledger.create_fixed(reason)
        self._grids[tensor] = torch.tensor(ident, device="cpu").expand(tensor.shape)

    def source(self, tensor: torch.Tensor) -> Source | None:
        """Return the source of a tensor; None if its elements come from no parameter."""
        name = self.names.get(id(tensor))
        if name is not None:
            return Source(name, tuple(tensor.shape))
        return self._sources.get(tensor)

    def set_source(self, tensor: torch.Tensor, source: Source) -> None:
        """Set the source of a tensor."""
        self._sources[tensor] = source

    def is_known(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor carries channels or comes from a parameter."""
        return tensor in self._grids or id(tensor) in self.names or tensor in self._sources

    def is_fixed(self, tensor: torch.Tensor) -> bool:
        """Whether all channels that a tensor carries stay, and it comes from no parameter."""
        if self.source(tensor) is not None:
            return False
        return self.ledger.are_fixed(narrowed(self.ids(tensor)).reshape(-1).numpy())

    def whole_parameter(self, tensor: torch.Tensor | None) -> str | None:
        """Return the name of the parameter that a tensor is in unchanged layout; else None."""
        if tensor is None:
            return None
        if id(tensor) in self.names:
            return self.names[id(tensor)]
        source = self.source(tensor)
        return source.parameter if source is not None and source.is_whole else None

    def rows(self, tensor: torch.Tensor) -> tuple[str, range] | None:
        """Return the parameter, and the range of entries along its axis 0, that a tensor holds.

        The range of a whole parameter is the whole axis. None for any other tensor.
        """
        name = self.names.get(id(tensor))
        if name is not None and tensor.dim() and tensor.numel():
            return name, range(len(tensor))
        source = self.source(tensor)
        if source is None or not tensor.dim() or not tensor.numel():
            return None
        first, inner = first_of_run(source.elements), math.prod(source.shape[1:])
        if first is None or first % inner or tuple(tensor.shape[1:]) != source.shape[1:]:
            return None
        return source.parameter, range(first // inner, (first + tensor.numel()) // inner)

    def matrix(self, tensor: torch.Tensor) -> tuple[str, int, int] | None:
        """Return the parameter that a tensor is a matrix of, and the matrix's axes in it.

        The tensor is the parameter itself, a stack of matrices, or part of the stack, possibly
        transposed. None for any other tensor, and for single rows.
        """
        source = self.source(tensor)
        if source is None or min(len(source.shape), tensor.dim()) < 2:  # noqa: PLR2004 (a matrix)
            return None
        last = len(source.shape) - 1
        if (source.moved is None and tensor.numel()) or is_stack(source.elements, source.shape):
            return source.parameter, last - 1, last
        if is_stack(source.elements.mT, source.shape):
            return source.parameter, last, last - 1
        return None

    def _united(self, grid: torch.Tensor) -> torch.Tensor:
        """Return the grid, with one id per group if it varies along several axes."""
        if len(varying_axes(grid)) <= 1:
            return grid
        small = narrowed(grid)
        roots = self.ledger.find(small.reshape(-1).numpy())
        return compact(torch.from_numpy(roots).reshape(small.shape).expand(grid.shape))

    def unite_along(self, grid: torch.Tensor, axes: Iterable[int], place: str) -> torch.Tensor:
        """Tie the channels along `axes`, so the grid varies only along the others."""
        grid = narrowed(grid)
        for axis in axes:
            first = grid.narrow(axis, 0, 1)
            one = first.expand(grid.shape).reshape(-1).numpy()
            self.ledger.tie(one, grid.reshape(-1).numpy(), place)
            grid = first
        return grid

    def tie_axes(self, grid: torch.Tensor, axes: tuple[int, ...], ids: Ids, place: str) -> None:
        """Tie the channels along adjacent axes, in order, to `ids`, whose number is their size.

        If they are the same channels in another order, their number agrees anyway.

        Args:
            grid: ids.
            axes: ascending.
            ids: as many channels as there are along `axes` together.
            place: the address of the call that was passed the size.
        """
        moving = varying_axes(grid)
        if set(axes).isdisjoint(moving):
            return
        small = self.unite_along(grid, [axis for axis in moving if axis not in axes], place)
        shape = [grid.shape[a] if a in axes else 1 for a in range(grid.dim())]
        found = small.expand(shape).reshape(-1).numpy()
        before, after = (np.sort(self.ledger.find(one)) for one in (ids, found))
        if not np.array_equal(before, after):
            self.ledger.tie(found, ids, place)

    def mix(
        self, grid: torch.Tensor, axes: Iterable[int], reason: tuple[str, str]
    ) -> torch.Tensor:
        """Record that a function computes across `axes`, and return the remaining ids.

        Channels along these axes are tied. If nothing else distinguishes channels, they are
        fixed, because they could only be removed all together.

        Args:
            grid: ids.
            axes: not negative.
            reason: the address of the call, and what it does to the channels.
        """
        place, what = reason
        moving = varying_axes(grid)
        mixed = [axis for axis in moving if axis in set(axes)]
        if not mixed:
            return grid
        if len(mixed) == len(moving):
            self.fix(grid, f"'{place}' {what}")
            return grid
        return self.unite_along(grid, mixed, place).expand(grid.shape)

    def sequence(self, grid: torch.Tensor, axis: int, place: str) -> Ids | None:
        """Return the ids along `axis`; channels that vary along other axes are tied there.

        None if they vary only along other axes.
        """
        axis %= grid.dim()
        moving = varying_axes(grid)
        if axis in moving and len(moving) > 1:
            others = [other for other in moving if other != axis]
            grid = self.unite_along(grid, others, place).expand(grid.shape)
        return sequence(grid, axis)

    def split(self, split: Split) -> None:
        """Record a call in which code passes the sizes of axes of channels."""
        self._splits.append(split)

    def settle(self) -> None:
        """Tie channels so that each axis can lose some and every tensor stays rectangular.

        Of several axes along which channels vary, one can shrink: the axis whose size follows
        from the others, else the longest. Then records module integers that give shrinking sizes.
        """
        count = -1
        while count != self.ledger.unions:
            count = self.ledger.unions
            for split in self._splits:
                grid = self._united(split.grid)
                moving = varying_axes(grid)
                if len(moving) > 1:
                    free = [axis for axis in moving if axis in split.free] or list(moving)
                    kept = max(free, key=lambda axis: grid.shape[axis])
                    self.unite_along(grid, [a for a in moving if a != kept], split.place)
            self._count_widths()

    def _count_widths(self) -> None:
        for split in self._splits:
            grid = self._united(split.grid)
            for axis in varying_axes(grid):
                ids = sequence(grid, axis)
                if axis in split.widths and ids is not None:
                    self.ledger.count(*split.widths[axis], ids)
                if axis in split.literals and ids is not None:
                    self.ledger.hold(split.place, ids)
                    # otherwise a free axis of channels would shrink instead of this one
                    if not set(split.free).isdisjoint(varying_axes(split.grid)):
                        self.ledger.fix(ids, f"'{split.place}' {_LEFT}", split.place)
        self.ledger.count_bounds()

    def fix(self, grid: torch.Tensor, reason: str) -> None:
        """Record that all channels of a grid must stay."""
        self.ledger.fix(narrowed(grid).reshape(-1).numpy(), reason)

    def fix_if_read(self, tensor: torch.Tensor, grid: torch.Tensor, reason: str) -> None:
        """Record that channels must stay if anything reads `tensor`."""
        self._conditions[tensor] = (grid, reason)

    def read(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record that tensors are read."""
        if not self._conditions:
            return
        for tensor in tensors:
            condition = self._conditions.get(tensor)
            if condition is not None:
                self.fix(*condition)

    def fix_tensor(self, tensor: torch.Tensor, reason: str) -> None:
        """Record that all channels that a tensor carries must stay."""
        self.fix(self.ids(tensor), reason)
        source = self.source(tensor)
        if source is not None:
            self.ledger.fix_parameter(source.parameter, reason)

    def merge(
        self, operands: Sequence[torch.Tensor], shape: Sequence[int], place: str
    ) -> torch.Tensor:
        """Return the ids of the result of an elementwise function, and tie its operands' ids.

        Args:
            operands: activations, parameters and constants, broadcast to `shape`.
            shape: the shape of the result.
            place: the address of the call, for reasons.
        """
        sources = [self.source(tensor) for tensor in operands]
        grids = [self.ids(t) for t, s in zip(operands, sources, strict=True) if s is None]
        merged = self.merge_grids(grids, shape, place)
        for source in sources:
            if source is not None:
                self.follow(merged, source, place)
        return merged

    def merge_grids(
        self, grids: Sequence[torch.Tensor], shape: Sequence[int], place: str
    ) -> torch.Tensor:
        """Tie the ids of grids broadcast to `shape`, and return the resulting ids."""
        even = [lifted(grid, len(shape)) for grid in grids]
        kept = [narrowed(grid) for grid in even]
        if len({grid.shape for grid in kept}) > 1:
            kept = self._kept(even, place)
        if not kept:
            mixed = torch.tensor(self.ledger.create_fixed(f"'{place}' mixes it"), device="cpu")
            return mixed.expand(tuple(shape))
        merged = kept[0]
        for grid in kept[1:]:
            if merged.shape != grid.shape:
                merged = merged.expand(np.broadcast_shapes(merged.shape, grid.shape))
            one, other = (each.reshape(-1).numpy() for each in (merged, grid.expand(merged.shape)))
            self.ledger.tie(one, other, place)
            if np.count_nonzero(one == NO_CHANNEL):
                one = np.where(one == NO_CHANNEL, other, one)
                merged = compact(torch.from_numpy(one).view(merged.shape))
        return merged.expand(tuple(shape))

    def _kept(self, grids: Sequence[torch.Tensor], place: str) -> list[torch.Tensor]:
        """Return the narrowed grids that are not broadcast over the channels of others."""
        grids = self._apart(grids, place)
        moving = {axis for grid in grids for axis in varying_axes(grid)}
        kept = []
        for grid in grids:
            if any(grid.shape[axis] == 1 for axis in moving):
                self.fix(grid, f"'{place}' broadcasts it over other channels")
            else:
                kept.append(narrowed(grid))
        return kept

    def _apart(self, grids: Sequence[torch.Tensor], place: str) -> list[torch.Tensor]:
        """Return grids so that no two are broadcast over each other's channels.

        In such a pair, as in an outer product, the channels of one grid are fixed: those that
        must stay anyway, else those of the grid with fewer channels.
        """
        grids = list(grids)
        for one, other in itertools.combinations(range(len(grids)), 2):
            pair = (grids[one], grids[other])
            if all(is_broadcast(*order) for order in (pair, pair[::-1])):
                costs = [self._cost(grid) for grid in pair]
                loser = one if costs[0] <= costs[1] else other
                self.fix(grids[loser], f"'{place}' broadcasts it over other channels")
                grids[loser] = no_channels(grids[loser].shape)
        return grids

    def _cost(self, grid: torch.Tensor) -> int:
        """Return the maximum number of channels of a grid that can still be removed."""
        ids = narrowed(grid).reshape(-1).numpy()
        return 0 if self.ledger.are_fixed(ids) else len(np.unique(ids))

    def follow(self, grid: torch.Tensor, source: Source, place: str) -> None:
        """Record that a parameter, broadcast to a grid, has one entry per channel on an axis."""
        elements = lifted(source.elements, grid.dim())
        if all(elements.shape[axis] == 1 for axis in varying_axes(grid)):
            return
        common = np.broadcast_shapes(narrowed(grid).shape, elements.shape)
        channel = self.ledger.find(narrowed(grid).expand(common).reshape(-1).numpy())
        element = elements.expand(common).reshape(-1).numpy()
        for axis, coordinates in enumerate(np.unravel_index(element, source.shape)):
            entries = np.full(source.shape[axis], NO_CHANNEL, dtype=np.int64)
            entries[coordinates] = channel
            met = np.zeros(len(entries), dtype=bool)
            met[coordinates] = True
            if met.all() and np.array_equal(entries[coordinates], channel):
                self.ledger.carry(source.parameter, axis, entries, Role.FOLLOWER)
                return
        self.fix(
            grid, (f"'{place}' combines it with '{source.parameter}', but not channel by channel")
        )
