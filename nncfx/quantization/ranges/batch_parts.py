"""Split large batches into parts whose activations fit into the caches of a processor."""

from collections.abc import Iterable, Sequence, Sized
from itertools import chain
from typing import Final

from torch import Tensor

from nncfx.network import NNCFNetwork
from nncfx.tracing import ExampleInputs

_FITTING: Final = 1 << 21
"""Elements of the largest activation of a part. With 48 images of 224 x 224 pixels at once,
EfficientNet-B0 takes 1.9 times as long as in parts of 8; with 50 of 48 x 48 pixels, MTCNN's ONet
takes 1.3 times as long as in parts of 25."""
_FEW: Final = 8
"""Examples in a small part; parts of one read weights more often and take 1.4 times as long."""
_LARGE: Final = 4 * _FITTING
"""Elements of the largest activation of a small part."""


def in_parts(model: NNCFNetwork, inputs: Iterable[ExampleInputs]) -> Iterable[ExampleInputs]:
    """Return `inputs` with batches of large activations split along axis 0; a list for a list.

    Batches are split only for a model that has one input and the examples along axis 0 of all its
    activations, so that examples are computed independently. Sizes of activations are taken from
    its trace.
    """
    length = _length(model)
    if length is None:
        return inputs
    parts = chain.from_iterable(_parts(batch, length) for batch in inputs)
    return list(parts) if isinstance(inputs, Sized) else parts


def _parts(batch: ExampleInputs, length: int) -> Sequence[ExampleInputs]:
    """Return parts whose sizes differ by at most one, since means of batches weigh the same."""
    if not isinstance(batch, Tensor):
        return (batch,)
    return batch.tensor_split(-(-len(batch) // length))


def _length(model: NNCFNetwork) -> int | None:
    """Return how many examples a part has; None if batches stay whole."""
    example = model.nncf.example_inputs
    count = len(example) if isinstance(example, Tensor) and example.ndim else 1
    made = [one for operation in model.nncf.graph.operations for one in operation.outputs]
    # with one example, an axis of length 1 need not be that of the examples
    if count == 1 or any(one.shape[:1] != (count,) for one in made):
        return None
    largest = max((one.elements for one in made), default=0)
    most, fitting = (size * count // max(largest, 1) for size in (_LARGE, _FITTING))
    return max(min(most, _FEW), fitting, 1)
