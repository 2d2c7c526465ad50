"""Large batches in parts, whose activations stay in the caches of a processor."""

from collections.abc import Iterable, Sequence, Sized
from itertools import chain
from typing import Final

from torch import Tensor

from nncfx.network import NNCFNetwork
from nncfx.tracing import ExampleInputs

_FITTING: Final = 1 << 21
"""Numbers of the largest activation of a part. 48 images of 224 x 224 pixels at once take
EfficientNet-B0 1.9 times as long as in parts of 8, 50 of 48 x 48 MTCNN's ONet 1.3 times as long as
in parts of 25."""
_FEW: Final = 8
"""Examples of a part with which weights are read often: 1.4 times as long in parts of one."""
_LARGE: Final = 4 * _FITTING
"""Numbers of the largest activation of few examples."""


def in_parts(model: NNCFNetwork, inputs: Iterable[ExampleInputs]) -> Iterable[ExampleInputs]:
    """Return `inputs`, those with large activations in parts along axis 0; of a list, a list.

    Only a model of one input is given parts, and one that has the examples along axis 0 of all
    that it computes: then each is computed by itself. Its trace tells how large activations are.
    """
    length = _length(model)
    if length is None:
        return inputs
    parts = chain.from_iterable(_parts(batch, length) for batch in inputs)
    return list(parts) if isinstance(inputs, Sized) else parts


def _parts(batch: ExampleInputs, length: int) -> Sequence[ExampleInputs]:
    """Return parts that are alike but for one example, since means of batches weigh the same."""
    if not isinstance(batch, Tensor):
        return (batch,)
    return batch.tensor_split(-(-len(batch) // length))


def _length(model: NNCFNetwork) -> int | None:
    """Return how many examples a part has; None where batches stay whole."""
    example = model.nncf.example_inputs
    count = len(example) if isinstance(example, Tensor) and example.ndim else 1
    made = [one for operation in model.nncf.graph.operations for one in operation.outputs]
    # of one example, what is computed of all of them looks the same
    if count == 1 or any(one.shape[:1] != (count,) for one in made):
        return None
    largest = max((one.elements for one in made), default=0)
    most, fitting = (size * count // max(largest, 1) for size in (_LARGE, _FITTING))
    return max(min(most, _FEW), fitting, 1)
