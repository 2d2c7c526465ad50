"""What integers cost under the context coder, before anything is written."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nncfx.storage.context_coding.layout import IntegerLayout, candidates, in_order, restored
from nncfx.storage.context_coding.model import AdaptiveModel

__all__ = ["estimate_bits"]


def estimate_bits(
    integers: NDArray[np.signedinteger[Any]], model: AdaptiveModel | None = None
) -> NDArray[np.float32]:
    """Return how many bits each of `integers` takes in a file, in the shape of `integers`.

    The bits add up to the size of the tensor's part of a stream, some bytes not counted.

    Args:
        integers: A tensor, output channels first, of int8, int16, int32 or int64.
        model: What tensors before it in the stream have taught; learns from this one as well.
            By default, the tensor comes first.
    """
    model = model or AdaptiveModel()
    tried: list[tuple[int, int, NDArray[np.int32], IntegerLayout, AdaptiveModel]] = []
    for layout in candidates(integers):
        one = model.copy()
        values = in_order(integers, layout)
        prices = one.code(values, layout)
        tried.append((int(prices.sum(dtype=np.int64)), len(tried), prices, layout, one))
    _, _, prices, layout, best = min(tried, key=lambda one: one[:2])
    model.take(best)
    bits = restored(prices, integers.shape, layout).reshape(integers.shape)
    return (bits / np.float32(65536)).astype(np.float32)
