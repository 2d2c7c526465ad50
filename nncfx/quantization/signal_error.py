"""How much larger the outputs of layers are than their errors under quantization."""

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
"""Of signal over error: a tenth of the energy is error."""
_NAMED: Final = 5
_BYTE: Final = 8
_LAYERS: Final = CONTRACTIONS | {"recurrent"}
_LOGGER = logging.getLogger(__name__)


class Energies:
    """Sums the energy of a tensor and that of its error.

    Attributes:
        signal: The energy so far.
        error: That of the error.
    """

    def __init__(self) -> None:
        self.signal = self.error = 0.0
        self._exact: Tensor | None = None

    def add(self, exact: Tensor, changed: Tensor) -> None:
        """Count a tensor, and what it should be."""
        wanted = in_float64(exact.detach())
        difference = in_float64(changed.detach()) - wanted
        self.signal += float(vector_norm(wanted)) ** 2
        self.error += float(vector_norm(difference)) ** 2

    def note(self, output: Tensor) -> None:
        """See a tensor in float, and then quantized.

        They are not compared where their shapes differ: an expert got other tokens.
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
    """Return by address the SQNR of each layer's output in dB, all of `model` being quantized.

    Args:
        model: With quantizers, calibrated.
        batch: Some inputs.
        float_values: Parameters by name as they were before they were changed in place.
    """
    layers = {address: Energies() for address in quantizers_by_layer(model)}
    notes: dict[Site, Note] = {PostSite(address): one.note for address, one in layers.items()}
    with probing(model, notes):
        run_batches(model, in_float_first(model, [batch], float_values))
    return {address: one.sqnr_db for address, one in layers.items()}


def warn_large_errors(
    model: NNCFNetwork, batch: ExampleInputs, float_values: Mapping[str, Tensor]
) -> None:
    """Log the layers whose output is hardly larger than its error, the worst first.

    Arguments are those of `layer_errors`.
    """
    layers = layer_errors(model, batch, float_values)
    # where the signal is 0, as of layers that begin with weights of 0, decibels say nothing
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
    """Say whether a weight has fewer bits than the preset "thorough" leaves alone."""
    hooks = quantizers_of(model).items()
    return any(isinstance(site, WeightSite) and one.spec.bits < _BYTE for site, one in hooks)


def quantizers_by_layer(model: NNCFNetwork) -> dict[str, frozenset[Quantizer]]:
    """Return the quantizers of the weights and inputs of each layer, by address.

    A layer is a convolution, product or recurrent layer with at least one of them. The quantizer
    of an input is the nearest one on its way to the layer.
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
