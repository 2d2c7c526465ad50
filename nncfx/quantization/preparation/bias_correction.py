"""Bias correction: remove the mean shift of each channel due to quantization."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.graph import NNCFGraph, Operation
from nncfx.network import NNCFNetwork
from nncfx.operators import LINEAR_LAYERS, operation_kind
from nncfx.quantization.preparation.layer_chains import (
    CONVOLUTIONS,
    find_layers,
    reader_behind,
    readers,
)
from nncfx.quantization.ranges.observation import (
    Note,
    in_float_first,
    probing,
    run_batches,
    warn_if_none,
)
from nncfx.schemes.wide_floats import wide
from nncfx.tracing import ExampleInputs, PostSite, Site

_MASSIVE: Final = 4
"""Tokens with a norm above this multiple of the median in the batch are ignored."""


class BatchMeans(NamedTuple):
    """Channel means of a layer's output for a batch.

    Attributes:
        values: The mean of each channel, c.
        places: The number n of places (pixels or tokens) in the output.
        tokens: Which of the n tokens count, in the order of the output; all if None.
    """

    values: Tensor
    places: int
    tokens: Tensor | None


FloatMeans = Mapping[str, list[BatchMeans]]
"""Means of the output for each batch, by address of the operation."""


@contextmanager
def noting_means(model: NNCFNetwork) -> Iterator[FloatMeans]:
    """Yield means that are recorded while `model` runs in float inside the block.

    They are the means of the channels that `correct_biases` corrects; pass them to it to save the
    runs in float.
    """
    found: dict[str, list[BatchMeans]] = {}

    def noting(address: str, axis: int) -> Note:
        means = found[address] = []
        return lambda output: means.append(_means_of(output, axis))

    shifts = _shifts(model, model.nncf.graph)
    with probing(
        model, {PostSite(address): noting(address, one.axis) for address, one in shifts.items()}
    ):
        yield found


def correct_biases(
    model: NNCFNetwork,
    batches: Iterable[ExampleInputs],
    *,
    float_means: FloatMeans | None = None,
    was_asked: bool = True,
) -> dict[str, float]:
    """Shift biases, in place, so that each channel has the same mean as in float.

    Each batch runs in float, unless `float_means` are given, and quantized. During the quantized
    run the output of each layer is corrected by its mean shift so far before the next layer reads
    it, so each layer only compensates its own shift. For a residual branch the means of the sum
    that it ends in are compared. Tokens of massive norm are ignored: ranges clip them, so their
    error differs from that of the other tokens, which share the bias. The bias of each
    convolution and linear layer is corrected, or, if it has none, that of the batch norm after
    it. A layer with neither, or with a shared bias, is not changed. A batch is ignored for a layer
    that reads more or fewer tokens than in float, or none, as experts may.

    Args:
        model: With calibrated quantizers; runs in evaluation mode.
        batches: Inputs of the model, at least one; more batches give better means.
        float_means: Means from `noting_means` for the same batches, instead of runs in float.
        was_asked: Whether to log that there is nothing to correct.

    Returns:
        By module name, the largest correction of a channel, in units of the module's output.

    Raises:
        ArgumentError: there are no batches.

    Source: Nagel et al. 2019, Data-Free Quantization Through Weight Equalization, appendix D
    (empirical bias correction); Sun et al. 2024, Massive Activations in Large Language Models.
    """
    shifts = _shifts(model, model.nncf.graph)
    needs = "layer with a bias or a batch norm of its own"
    warn_if_none(shifts, "Correcting biases", needs, was_asked=was_asked)
    if not shifts:
        return {}
    notes: dict[Site, Note] = {PostSite(address): one.note for address, one in shifts.items()}
    if float_means is None:
        batches = in_float_first(model, batches)
    else:
        for address, one in shifts.items():
            one.expect(float_means[address])
    with probing(model, notes):
        run_batches(model, batches)
    return {one.name: one.apply() for one in shifts.values()}


def channel_means(output: Tensor, axis: int, rows: Tensor | None = None) -> Tensor:
    """Return the mean for each index of `axis`, c, over the n places of the other axes.

    `rows`, n booleans in the order of the axes, selects the places; by default all count.
    """
    found = wide(output.detach())
    if rows is None:
        others = [one for one in range(found.ndim) if one != axis % found.ndim]
        return found.mean(others) if others else found
    return found.movedim(axis, -1).reshape(-1, output.shape[axis])[rows].mean(0)


def _means_of(output: Tensor, axis: int) -> BatchMeans:
    """Return the means of a layer's float output, and the tokens that they cover.

    All places of an image count (`axis` is not -1), and all tokens except massive ones.
    """
    tokens = None
    if axis == -1:
        norms = wide(output.detach()).reshape(-1, output.shape[-1]).norm(dim=1)
        tokens = norms <= _MASSIVE * norms.median()
    return BatchMeans(channel_means(output, axis, tokens), _places(output, axis), tokens)


def _places(output: Tensor, axis: int) -> int:
    return output.numel() // max(output.shape[axis], 1)


class _Shift:
    """The mean shift of a module's channels from their float values, over the batches so far."""

    def __init__(self, name: str, bias: nn.Parameter, axis: int) -> None:
        """Track `bias` of the module `name`; `axis` of the channels counts from the end."""
        self.name = name
        self.axis = axis
        self._bias = bias
        self._expected: Iterator[BatchMeans] | None = None
        self._means: BatchMeans | None = None
        self._total: Tensor | None = None
        self._batches = 0

    def expect(self, means: Iterable[BatchMeans]) -> None:
        """Set the float means of all following batches, so `note` only sees quantized outputs."""
        self._expected = iter(means)

    def note(self, output: Tensor) -> Tensor | None:
        """Record the module's output in float, then the quantized output; correct the latter."""
        if self._expected is not None:
            self._means = next(self._expected, None)
        if self._means is None:
            # an output in float, or a call that did not happen in float
            self._means = _means_of(output, self.axis) if self._expected is None else None
            return None
        expected, self._means = self._means, None
        if expected.places and expected.places == _places(output, self.axis):
            # otherwise an expert has no tokens, or other tokens than in float
            lacking = expected.values - channel_means(output, self.axis, expected.tokens)
            self._total = lacking if self._total is None else self._total + lacking
            self._batches += 1
        if self._total is None:
            return None
        shift = (self._total / self._batches).view(-1, *[1] * (-self.axis - 1))
        return output + shift.to(output.dtype)

    def apply(self) -> float:
        """Add the mean shift to the bias; return its largest magnitude."""
        if self._total is None:
            return 0.0
        shift = self._total / self._batches
        self._bias.data += shift
        return float(shift.abs().max())


def _shifts(model: nn.Module, graph: NNCFGraph) -> dict[str, _Shift]:
    """Return the shifts to correct, by the address of the operation whose means are compared."""
    found: dict[str, _Shift] = {}
    functions = CONVOLUTIONS | LINEAR_LAYERS
    for layer in find_layers(model, graph, functions).values():
        operation, bias, name = layer.operation, layer.bias, layer.name
        axis = -1 if layer.is_matrix else 1 - layer.weight.ndim
        if bias is None:
            norm = reader_behind(graph, operation, ())
            if norm is None or norm.function != "batch_norm" or not _is_called_once(graph, norm):
                continue
            module = model.get_submodule(norm.module)
            if not (isinstance(module, _BatchNorm) and module.affine):
                continue
            operation, bias, name = norm, module.bias, norm.module
            axis = 1 - len(norm.outputs[0].shape)
        found[_sum_behind(graph, operation).address] = _Shift(name, bias, axis)
    return found


def _sum_behind(graph: NNCFGraph, operation: Operation) -> Operation:
    """Return the sum that is the only reader of `operation`, or else `operation` itself.

    A residual branch partly compensates the errors of the stream that it is added to. Restoring
    its own float mean would undo this, so the mean of the sum is restored instead. If two branches
    enter a sum, the later one is corrected.
    """
    edges = graph.outgoing(operation.address)
    following = list(readers(graph, operation.address))
    reader = following[0] if len(edges) == 1 else None
    is_sum = reader is not None and operation_kind(reader.function) == "add"
    if reader is None or not is_sum or reader.outputs[0].shape != operation.outputs[0].shape:
        return operation
    return reader


def _is_called_once(graph: NNCFGraph, norm: Operation) -> bool:
    calls = [one.module for one in graph.operations if one.function == norm.function]
    return calls.count(norm.module) == 1
