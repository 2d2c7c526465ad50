"""Orders the channels of every space so that its readers find theirs adjacent.

A segment is the unit of ordering: spaces that are adjacent in the input of some layer, and all
layers that read them.

Source: A. Wan et al., "UPSCALE: Unconstrained Channel Pruning", ICML 2023, section 3.1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nncfx.errors import ArgumentError
from nncfx.reorder.order import channel_order


class ChannelBlock(NamedTuple):
    """All channels of one space within the input of a layer.

    Attributes:
        space: The space; its channels are in the order of the space.
        size: Number of channels. A space of one channel cannot be reordered, and keeps its place.
    """

    space: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Reader:
    """The input of one layer.

    Attributes:
        blocks: The adjacent spaces, in the order of the concatenation.
        keep: The channels that it needs, each by its space and its index there.
        cost: The cost of copying one channel.
    """

    blocks: tuple[ChannelBlock, ...]
    keep: frozenset[tuple[str, int]]
    cost: float


def segment_orders(readers: Iterable[Reader]) -> dict[str, list[int]]:
    """Return the new order of every space that changes: the channel at each position.

    Layers that read the spaces in another arrangement than layers that read more of them are
    ignored.

    Raises:
        ArgumentError: a space has two sizes, or a layer needs a channel that it does not read.

    >>> wide = ChannelBlock("a", 4)
    >>> keeps = [{("a", 0), ("a", 2)}, {("a", 2), ("a", 3)}]
    >>> segment_orders([Reader(blocks=(wide,), keep=frozenset(k), cost=1) for k in keeps])
    {'a': [0, 2, 3, 1]}
    """
    lines = _lines(_checked(readers))
    orders: dict[str, list[int]] = {}
    for line, fitting in lines:
        orders |= _ordered(line, fitting)
    return orders


def _checked(readers: Iterable[Reader]) -> list[Reader]:
    listed = list(readers)
    sizes: dict[str, int] = {}
    for reader in listed:
        for space, size in reader.blocks:
            known = sizes.setdefault(space, size)
            if known != size:
                raise ArgumentError(
                    f"'{space}' has {known} channels for one reader and {size} for another, so "
                    "what produces it does not correspond. Give each space one size."
                )
        own = dict(reader.blocks)
        for space, channel in sorted(reader.keep):
            if not 0 <= channel < own.get(space, 0):
                raise ArgumentError(
                    f"A reader of {', '.join(own)} needs channel {channel} of '{space}', which it "
                    "does not read. Let keep name channels of its blocks."
                )
    return listed


def _lines(readers: list[Reader]) -> list[tuple[tuple[ChannelBlock, ...], list[Reader]]]:
    """Return the longest arrangements, each with the readers that read a part of it."""
    lines: list[tuple[tuple[ChannelBlock, ...], list[Reader]]] = []
    line_of: dict[ChannelBlock, int] = {}
    for reader in sorted(readers, key=lambda one: -len(one.blocks)):
        number = next((line_of[b] for b in reader.blocks if b in line_of), None)
        if number is None:
            line_of |= dict.fromkeys(reader.blocks, len(lines))
            lines.append((reader.blocks, [reader]))
        elif _is_stretch(reader.blocks, lines[number][0]):
            lines[number][1].append(reader)
    return lines


def _is_stretch(part: tuple[ChannelBlock, ...], whole: tuple[ChannelBlock, ...]) -> bool:
    if part[0] not in whole:
        return False
    start = whole.index(part[0])
    return whole[start : start + len(part)] == part


def _ordered(line: Sequence[ChannelBlock], readers: Sequence[Reader]) -> dict[str, list[int]]:
    """Return the orders of the spaces of one line that change."""
    first: dict[str, int] = {}
    count = 0
    for block in line:
        first[block.space] = count
        count += block.size
    keeps = [{first[space] + channel for space, channel in one.keep} for one in readers]
    order = channel_order(
        keeps,
        weights=[one.cost for one in readers],
        size=count,
        producers=[range(first[b.space], first[b.space] + b.size) for b in line],
    )
    orders = {}
    for block in line:
        start = first[block.space]
        members = range(start, start + block.size)
        found = [channel - start for channel in order if channel in members]
        if found != list(range(block.size)):
            orders[block.space] = found
    return orders
