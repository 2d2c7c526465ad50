"""Orders a producer's channels so that consumers read slices of it instead of copies.

Source: A. Wan et al., "UPSCALE: Unconstrained Channel Pruning", ICML 2023, section 3. Their order
    comes from maximum-reward acyclic paths; ours from PQ-trees, which find an order without copies
    whenever there is one, and otherwise the one that copies least.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from nncfx.errors import ArgumentError
from nncfx.graph.consecutive_ones import contiguous_tree, frontier
from nncfx.graph.contiguous_subset import contiguous_subset
from nncfx.reorder.keeps import checked_channels, checked_keeps, checked_size, checked_weights


def channel_order(
    keeps: Iterable[Iterable[int]],
    *,
    weights: Sequence[float] | None = None,
    size: int | None = None,
    producers: Iterable[Iterable[int]] | None = None,
) -> list[int]:
    """Return the order of the channels that minimises copies.

    A consumer whose channels are contiguous in the order reads a slice; any other copies all of
    its channels. `nncfx.export.channel_reads` returns the reads of each consumer,
    `copied_channels` the total. An order without copies is found whenever there is one. Otherwise
    the total is minimal for up to 12 consumers whose sets overlap in one piece, and was in all our
    tests with up to 16; beyond that it can be the best result of a bounded search.

    The result is deterministic. It is the channels' own order if that copies nothing; otherwise
    channels whose position does not matter are sorted by id.

    Args:
        keeps: for each consumer the ids of the channels that it keeps. Ids start at 0 and need not
            be dense. An empty set, or all channels, is contiguous in every order.
        weights: for each consumer the non-negative cost of copying one channel: the bytes of one
            channel of the activation that it reads. 1 each if None.
        size: number of channels; the order then contains each of 0 ... `size` - 1, read or not. If
            None, it contains the channels in `keeps` (or `producers`).
        producers: for several concatenated tensors, the ids of the channels of each, in the order
            of the concatenation. Channels then move only within their producer.

    Raises:
        ArgumentError: an id is negative, not an integer or not below `size`; there is not one
            finite non-negative weight per consumer; `producers` share a channel or lack one.

    >>> channel_order([{1, 3}, {2, 3}])
    [1, 3, 2]
    >>> channel_order([{0, 1}, {0, 1, 3}, {0, 2}])
    [2, 0, 1, 3]
    >>> channel_order([{0, 3}, {2, 4}], producers=[[0, 1, 2], [3, 4]])
    [1, 2, 0, 3, 4]
    """
    kept = checked_keeps(keeps)
    costs = checked_weights(weights, len(kept))
    blocks = _checked_producers(producers)
    channels = _channels(kept, blocks, size)
    rank = {channel: position for position, channel in enumerate(channels)}

    cost_of: dict[int, float] = {}
    for keep, cost in zip(kept, costs, strict=True):
        members = _bits(rank[channel] for channel in keep)
        cost_of[members] = cost_of.get(members, 0) + cost * len(keep)
    sets = list(cost_of)
    required = _in_this_order([_bits(rank[channel] for channel in block) for block in blocks])

    chosen = contiguous_subset(sets, list(cost_of.values()), required)
    everything = (1 << len(channels)) - 1
    tree = contiguous_tree(everything, [*required, *(sets[index] for index in chosen)])
    return [channels[position] for position in frontier(tree)]


def _channels(kept: list[frozenset[int]], blocks: list[list[int]], size: int | None) -> list[int]:
    """Return all channels in their own order: ascending, or as in the producers."""
    named = frozenset().union(*kept)
    if size is not None:
        checked_size(size, sorted(named), "keeps")
    if not blocks:
        return sorted(named) if size is None else list(range(size))
    channels = [channel for block in blocks for channel in block]
    if size is not None:
        checked_size(size, sorted(channels), "producers")
        named |= frozenset(range(size))
    missing = sorted(named.difference(channels))
    if missing:
        message = (
            f"producers lack channel {missing[0]}, which keeps or size asks for; each channel "
            "comes from exactly one producer. Add it to the producer that makes it."
        )
        raise ArgumentError(message)
    return channels


def _checked_producers(producers: Iterable[Iterable[int]] | None) -> list[list[int]]:
    """Return the channels of each producer that is not empty."""
    blocks: list[list[int]] = []
    seen: dict[int, int] = {}
    for index, producer in enumerate(producers or ()):
        block = checked_channels(producer, f"producers[{index}]")
        for channel in block:
            if channel in seen:
                message = (
                    f"producers[{seen[channel]}] and producers[{index}] both hold channel "
                    f"{channel}; each channel comes from exactly one producer, once. "
                    "Number the channels of the concatenation from 0 on."
                )
                raise ArgumentError(message)
            seen[channel] = index
        if block:
            blocks.append(block)
    return blocks


def _in_this_order(blocks: list[int]) -> list[int]:
    """Return sets that, kept contiguous, force the blocks into their order or its mirror."""
    return [*blocks, *(one | other for one, other in pairwise(blocks))]


def _bits(positions: Iterable[int]) -> int:
    """Return the bit set of the positions."""
    members = 0
    for position in positions:
        members |= 1 << position
    return members
