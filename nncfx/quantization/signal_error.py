"""Measure the signal-to-error ratio of layer outputs under quantization."""

import logging
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from torch import Tensor
from torch.linalg import vector_norm

from nncfx.errors import shortened
from nncfx.float64 import in_float64
from nncfx.graph import NNCFGraph, Operation
from nncfx.network import NNCFNetwork
from nncfx.operators import CONTRACTIONS, operation_kind
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.ranges.observation import (
    Note,
    in_float_first,
    probing,
    quantizers_of,
    run_batches,
)
from nncfx.tracing import ExampleInputs, PostSite, PreSite, Site, WeightSite

_FEW_DB: Final = 10.0
"""SQNR at which a tenth of the energy is error."""
_NAMED: Final = 5
_BYTE: Final = 8
_LAYERS: Final = CONTRACTIONS | {"recurrent"}
_LOGGER = logging.getLogger(__name__)


class Energies:
    """Sums the energy of a tensor and that of its error.

    Attributes:
        signal: Energy of the tensor so far.
        error: Energy of the error so far.
    """

    def __init__(self) -> None:
        self.signal = self.error = 0.0
        self._exact: Tensor | None = None

    def add(self, exact: Tensor, changed: Tensor) -> None:
        """Add the energy of `exact` and that of its difference from `changed`."""
        wanted = in_float64(exact.detach())
        difference = in_float64(changed.detach()) - wanted
        self.signal += float(vector_norm(wanted)) ** 2
        self.error += float(vector_norm(difference)) ** 2

    def note(self, output: Tensor) -> None:
        """Record a tensor; calls alternate between float and quantized.

        Tensors of different shapes, as of experts that received other tokens, are not compared.
        """
        if self._exact is None:
            self._exact = output.detach().clone()
            return
        if self._exact.shape == output.shape:
            self.add(self._exact, output)
        self._exact = None

    @property
    def sqnr_db(self) -> float:
        """Signal over error in decibels; infinite without an error."""
        if self.error == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.error) if self.signal else -math.inf


def layer_errors(
    model: NNCFNetwork,
    batch: ExampleInputs,
    float_values: Mapping[str, Tensor] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the SQNR in dB of each layer's output, by address, with all of `model` quantized.

    Args:
        model: With calibrated quantizers.
        batch: Some inputs.
        float_values: Original values, by name, of parameters that were changed in place.
    """
    layers = {address: Energies() for address in quantizers_by_layer(model)}
    notes: dict[Site, Note] = {PostSite(address): one.note for address, one in layers.items()}
    with probing(model, notes):
        run_batches(model, in_float_first(model, [batch], float_values))
    return {address: one.sqnr_db for address, one in layers.items()}


def warn_large_errors(
    model: NNCFNetwork, batch: ExampleInputs, float_values: Mapping[str, Tensor]
) -> None:
    """Log the layers whose output has a large error, worst first.

    The arguments are those of `layer_errors`.
    """
    layers = layer_errors(model, batch, float_values)
    # skip layers without signal (weights initialised to 0), where decibels mean nothing
    found = {address: one for address, one in layers.items() if -math.inf < one < _FEW_DB}
    if found:
        worst = sorted(found, key=lambda one: found[one])
        _LOGGER.warning(
            "%d of %d layers return less than %g dB of signal over error: %s. "
            "nncfx.quantization.quantization_errors lists all; more bits%s or ignored_scopes "
            "help.",
            *(len(found), len(layers), _FEW_DB),
            shortened([f"{one} ({found[one]:.1f} dB)" for one in worst], _NAMED),
            ", preset='thorough'" if _has_narrow_weights(model) else "",
        )


def _has_narrow_weights(model: NNCFNetwork) -> bool:
    """Return whether a weight is narrow enough for the preset "thorough" to learn its rounding."""
    hooks = quantizers_of(model).items()
    return any(isinstance(site, WeightSite) and one.spec.bits < _BYTE for site, one in hooks)


def quantizers_by_layer(model: NNCFNetwork) -> dict[str, frozenset[Quantizer]]:
    """Return the quantizers of the weights and inputs of each layer, by address.

    A layer is a convolution, product or recurrent layer with at least one quantizer. The
    quantizer of an input is the closest one upstream of the layer.
    """
    quantizers = quantizers_of(model)
    graph = model.nncf.graph
    found = {}
    for one in graph.operations:
        if operation_kind(one.function) not in _LAYERS:
            continue
        own = {WeightSite.of(name) for name in one.parameters.values()}
        hooks = {quantizers[site] for site in own if site in quantizers}
        hooks |= set(_of_inputs(graph, one, quantizers))
        if hooks:
            found[one.address] = frozenset(hooks)
    return found


def _of_inputs(
    graph: NNCFGraph, operation: Operation, quantizers: dict[Site, Quantizer]
) -> Iterator[Quantizer]:
    for edge in graph.incoming(operation.address):
        sites = (
            PreSite(operation.address, edge.target_port),
            PostSite(edge.source, edge.source_port),
        )
        hooks = [quantizers[site] for site in sites if site in quantizers]
        yield from hooks
        source = graph.get(edge.source)
        if not hooks and source is not None and len(graph.incoming(source.address)) == 1:
            yield from _of_inputs(graph, source, quantizers)
