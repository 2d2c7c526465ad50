"""What each consumer reads of a producer whose channels have a given order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nncfx.errors import ArgumentError
from nncfx.reorder.keeps import checked_channels, checked_keeps, checked_weights


@dataclass(frozen=True, kw_only=True)
class ChannelRead:
    """How one consumer reads its channels.

    Attributes:
        positions: the positions of its channels in the order, ascending.
        channels: the ids there; the order for the consumer's weights.
        is_contiguous: whether a slice from `start` to `stop` reads exactly them.
        is_whole: whether they are all channels of the order, so that no selection is needed.
    """

    positions: tuple[int, ...]
    channels: tuple[int, ...]
    is_contiguous: bool
    is_whole: bool

    @property
    def start(self) -> int:
        """The first position read; 0 when nothing is read."""
        return self.positions[0] if self.positions else 0

    @property
    def stop(self) -> int:
        """One past the last position read; 0 when nothing is read."""
        return self.positions[-1] + 1 if self.positions else 0


def channel_reads(order: Iterable[int], keeps: Iterable[Iterable[int]]) -> list[ChannelRead]:
    """Return how each consumer reads its channels of a producer in this order.

    Raises:
        ArgumentError: an id is negative or not an integer, is twice in `order`, or is kept but not
            in `order`.

    >>> first, second = channel_reads([1, 3, 2], [{1, 3}, {1, 2}])
    >>> first.start, first.stop, first.channels
    (0, 2, (1, 3))
    >>> second.is_contiguous, second.positions
    (False, (0, 2))
    """
    channels = checked_channels(order, "order")
    position_of = {channel: position for position, channel in enumerate(channels)}
    if len(position_of) != len(channels):
        twice = next(c for p, c in enumerate(channels) if position_of[c] != p)
        message = (
            f"order holds channel {twice} twice; each channel has one position. "
            "Pass what channel_order returned."
        )
        raise ArgumentError(message)
    return [
        _read(consumer, keep, channels, position_of)
        for consumer, keep in enumerate(checked_keeps(keeps))
    ]


def copied_channels(
    order: Iterable[int], keeps: Iterable[Iterable[int]], *, weights: Sequence[float] | None = None
) -> float:
    """Return how many channels the consumers copy in total, weighted by consumer.

    A consumer whose channels are contiguous copies none, any other all of its channels. With the
    bytes of one channel as weights, this is the bytes copied; without weights, an integer.

    Raises:
        ArgumentError: as `channel_reads`; or there is not one finite non-negative weight per
            consumer.

    >>> copied_channels([0, 1, 2], [{0, 1}, {1, 2}, {0, 2}])
    2
    """
    reads = channel_reads(order, keeps)
    costs = checked_weights(weights, len(reads))
    return sum(
        cost * len(read.positions)
        for read, cost in zip(reads, costs, strict=True)
        if not read.is_contiguous
    )


def _read(
    consumer: int, keep: frozenset[int], channels: list[int], position_of: dict[int, int]
) -> ChannelRead:
    """Return how one consumer reads the channels that it keeps."""
    for channel in sorted(keep):
        if channel not in position_of:
            message = (
                f"keeps[{consumer}] holds channel {channel}, which is not in the order of "
                f"{len(channels)} channels. Pass the keeps that the order was made for."
            )
            raise ArgumentError(message)
    positions = tuple(sorted(position_of[channel] for channel in keep))
    return ChannelRead(
        positions=positions,
        channels=tuple(channels[position] for position in positions),
        is_contiguous=not positions or positions[-1] - positions[0] + 1 == len(positions),
        is_whole=len(positions) == len(channels),
    )
