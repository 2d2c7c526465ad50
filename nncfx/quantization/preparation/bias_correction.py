"""Bias correction: take back the mean shift that quantization gives each channel."""

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
"""Norm of a token, over the median of those in the batch, from which it does not count."""


class BatchMeans(NamedTuple):
    """What a layer returned for a batch.

    Attributes:
        values: The mean of each channel, c.
        places: Of how many places, n: pixels or tokens.
        tokens: Which of the n tokens count, in the order of the output; None: all.
    """

    values: Tensor
    places: int
    tokens: Tensor | None


FloatMeans = Mapping[str, list[BatchMeans]]
"""By address of an operation, what it returned for each batch."""


@contextmanager
def noting_means(model: NNCFNetwork) -> Iterator[FloatMeans]:
    """Yield means that are noted as `model` runs until the end of the block, in float.

    They are of the channels that `correct_biases` corrects, which then runs no batch in float.
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
    """Shift biases, in place, so that each channel has the mean that it has in float.

    Each batch runs in float, unless `float_means` are known, and quantized. In the latter run
    each layer's means so far are corrected before the next layer reads them, so that a later
    layer makes up for its own shift only. Of a residual branch the means of the sum that it ends
    in count. Tokens of massive norm do not: ranges clip them, and their error is not that of the
    others, which have the same bias. Corrected is the bias of each convolution and linear layer,
    or, where it has none, that of the batch norm after it. A layer with neither, or with a shared
    bias, is left alone. A batch of which a layer sees more or fewer tokens than in float, as an
    expert may, or none, does not count there.

    Args:
        model: With quantizers, calibrated. It runs in evaluation mode.
        batches: Inputs of the model, at least one; the more, the better the means.
        float_means: What `noting_means` noted of the same batches, in place of a run in float.
        was_asked: Whether to log that there is nothing to correct.

    Returns:
        By module name the largest correction of a channel, in units of the module's output.

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
    """Return the mean of each index of `axis`, c, over the n places of the other axes.

    `rows`, n booleans in the order of the axes, says which of them count; by default all do.
    """
    found = wide(output.detach())
    if rows is None:
        others = [one for one in range(found.ndim) if one != axis % found.ndim]
        return found.mean(others) if others else found
    return found.movedim(axis, -1).reshape(-1, output.shape[axis])[rows].mean(0)


def _means_of(output: Tensor, axis: int) -> BatchMeans:
    """Return the means of what a layer returned in float, and which tokens they are of.

    All places of an image count (`axis` is not the last one), and all tokens but massive ones.
    """
    tokens = None
    if axis == -1:
        norms = wide(output.detach()).reshape(-1, output.shape[-1]).norm(dim=1)
        tokens = norms <= _MASSIVE * norms.median()
    return BatchMeans(channel_means(output, axis, tokens), _places(output, axis), tokens)


def _places(output: Tensor, axis: int) -> int:
    return output.numel() // max(output.shape[axis], 1)


class _Shift:
    """How far a module's channels are from where they are in float, over the batches so far."""

    def __init__(self, name: str, bias: nn.Parameter, axis: int) -> None:
        """Take the axis of the channels, counted from the end."""
        self.name = name
        self.axis = axis
        self._bias = bias
        self._expected: Iterator[BatchMeans] | None = None
        self._means: BatchMeans | None = None
        self._total: Tensor | None = None
        self._batches = 0

    def expect(self, means: Iterable[BatchMeans]) -> None:
        """Take the means in float of each batch that is to come: `note` sees none in float."""
        self._expected = iter(means)

    def note(self, output: Tensor) -> Tensor | None:
        """See what the module returned in float, then quantized; correct the latter."""
        if self._expected is not None:
            self._means = next(self._expected, None)
        if self._means is None:
            # in float, or a call that was none in float
            self._means = _means_of(output, self.axis) if self._expected is None else None
            return None
        expected, self._means = self._means, None
        if expected.places and expected.places == _places(output, self.axis):
            # else an expert that has no tokens, or others than in float
            lacking = expected.values - channel_means(output, self.axis, expected.tokens)
            self._total = lacking if self._total is None else self._total + lacking
            self._batches += 1
        if self._total is None:
            return None
        shift = (self._total / self._batches).view(-1, *[1] * (-self.axis - 1))
        return output + shift.to(output.dtype)

    def apply(self) -> float:
        """Put the mean shift into the bias; return its largest magnitude."""
        if self._total is None:
            return 0.0
        shift = self._total / self._batches
        self._bias.data += shift
        return float(shift.abs().max())


def _shifts(model: nn.Module, graph: NNCFGraph) -> dict[str, _Shift]:
    """Return what can be corrected, by the address of the operation whose means it corrects."""
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
    """Return the sum that alone reads `operation`, or itself where there is none.

    What a residual branch returns makes up for the errors of what it is added to. Were its own
    mean put back to what it is in float, it no longer would; the mean of the sum is the one that
    counts. Of two branches the later one corrects it.
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
