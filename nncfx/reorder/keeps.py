"""Checks the channels that a caller wants each consumer to keep."""

import math
from collections.abc import Iterable
from numbers import Integral, Real

from nncfx.errors import ArgumentError


def checked_keeps(keeps: object) -> list[frozenset[int]]:
    """Return one set of channel ids per consumer; repeated ids count once.

    Raises:
        ArgumentError: `keeps` is not one iterable of non-negative integers per consumer.
    """
    if isinstance(keeps, str) or not isinstance(keeps, Iterable):
        raise ArgumentError(_not_iterable("keeps", keeps, "one set of channel ids per consumer"))
    return [
        frozenset(checked_channels(keep, f"keeps[{consumer}]"))
        for consumer, keep in enumerate(keeps)
    ]


def checked_channels(channels: object, place: str) -> list[int]:
    """Return channel ids as Python integers; `place` names the argument in messages.

    Raises:
        ArgumentError: an id is not an integer, or is negative.
    """
    if isinstance(channels, str) or not isinstance(channels, Iterable):
        raise ArgumentError(_not_iterable(place, channels, "the ids of channels"))
    return [_channel(channel, place) for channel in channels]


def checked_size(size: object, ids: Iterable[int], place: str) -> int:
    """Return the number of channels.

    Raises:
        ArgumentError: `size` is not a non-negative integer, or an id is not below it.
    """
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
        message = (
            f"size is {size!r}; it is the number of the producer's channels, an integer from 0 "
            "on. Leave it out to order only the channels that are named."
        )
        raise ArgumentError(message)
    for channel in ids:
        if channel >= size:
            message = (
                f"{place} hold channel {channel}, but size is {size}, so ids end at {size - 1}. "
                "Number the channels from 0, or pass the producer's real number of channels."
            )
            raise ArgumentError(message)
    return int(size)


def checked_weights(weights: Iterable[object] | None, consumers: int) -> list[float]:
    """Return the weight of each consumer, 1 by default.

    Raises:
        ArgumentError: there is not one finite non-negative number per consumer.
    """
    if weights is None:
        return [1] * consumers
    listed = list(weights)
    if len(listed) != consumers:
        message = (
            f"weights has {len(listed)} entries, but keeps names {consumers} consumers. "
            "Pass one weight per consumer: the bytes of one channel of what it reads."
        )
        raise ArgumentError(message)
    return [_weight(weight, f"weights[{consumer}]") for consumer, weight in enumerate(listed)]


def _weight(weight: object, place: str) -> float:
    if isinstance(weight, Real) and 0 <= float(weight) < math.inf:
        return int(weight) if isinstance(weight, Integral) else float(weight)
    message = (
        f"{place} is {weight!r}; a copy cannot cost that. "
        "Pass finite numbers from 0 on: the bytes of one channel of what is read."
    )
    raise ArgumentError(message)


def _channel(channel: object, place: str) -> int:
    if isinstance(channel, bool) or not isinstance(channel, Integral):
        message = (
            f"{place} holds {channel!r} ({type(channel).__name__}); a channel is named by its "
            "integer id. Of a mask, pass where its ones are: mask.nonzero().flatten().tolist()."
        )
        raise ArgumentError(message)
    if channel < 0:
        message = (
            f"{place} holds {channel}; channel ids start at 0, and do not count from the end. "
            f"Write the id from the front: the number of channels minus {-int(channel)}."
        )
        raise ArgumentError(message)
    return int(channel)


def _not_iterable(place: str, value: object, expected: str) -> str:
    return (
        f"{place} is {value!r} ({type(value).__name__}), not {expected}. "
        "Write for instance keeps=[{0, 1}, {1, 2}] for two consumers."
    )
