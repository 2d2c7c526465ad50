"""Measure size and harm of each width of each weight, and find the best widths within a size."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from nncfx.network import NNCFNetwork
from nncfx.quantization.analysis.bit_allocation import allocate_bits
from nncfx.quantization.analysis.layer_error import output_errors
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.ranges.calibration import calibration_inputs
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.tracing import WeightSite

_SAMPLES: Final = 32
"""Examples on which harm is measured."""
_BYTE: Final = 8

Build: TypeAlias = Callable[[Mapping[str, int]], NNCFNetwork]
"""Returns a quantized copy of the model, with these bits at these addresses."""


@dataclass(frozen=True, kw_only=True)
class WeightWidths:
    """A quantized weight: the addresses that read it, and the size and harm of each width."""

    addresses: frozenset[str]
    size_bytes: Mapping[int, float]
    harms: Mapping[int, float]


@dataclass(frozen=True, kw_only=True)
class WidthCandidates:
    """The models that the widths of weights allow.

    Attributes:
        choices: The bits that each weight can have, in descending order.
        weights: The weights by name of the parameter.
        fixed_bytes: Bytes that do not depend on widths.
        build: Builds a model.
    """

    choices: tuple[int, ...]
    weights: Mapping[str, WeightWidths]
    fixed_bytes: float
    build: Build

    def alike(self, bits: int) -> dict[str, int]:
        """Return the same width for all weights."""
        return dict.fromkeys(self.weights, bits)

    def best(self, size_bytes: int) -> dict[str, int]:
        """Return the widths within `size_bytes` with the least harm."""
        found = allocate_bits(
            [self.choices] * len(self.weights),
            [one.harms for one in self.weights.values()],
            [one.size_bytes for one in self.weights.values()],
            size_bytes - self.fixed_bytes,
        )
        return dict(zip(self.weights, found, strict=True))

    def size_bytes(self, bits: Mapping[str, int]) -> int:
        """Return the bytes of all parameters, rounded up."""
        quantized = sum(one.size_bytes[bits[name]] for name, one in self.weights.items())
        return math.ceil(self.fixed_bytes + quantized)

    def network(self, bits: Mapping[str, int]) -> NNCFNetwork:
        """Return the model with these widths."""
        return self.build(
            {each: bits[name] for name, one in self.weights.items() for each in one.addresses}
        )


def measure_widths(
    choices: Sequence[int], alike: Callable[[int], NNCFNetwork], batches: Sequence[Any]
) -> tuple[dict[str, WeightWidths], float]:
    """Return the size and harm of each width of each weight, and the bytes of the rest."""
    sizes: dict[str, dict[int, float]] = {}
    harms: dict[str, dict[int, float]] = {}
    addresses: dict[str, frozenset[str]] = {}
    fixed = 0.0
    for bits in choices:
        network = alike(bits)
        hooks = hooks_by_weight(network)
        for name, ones in hooks.items():
            sizes.setdefault(name, {})[bits] = _stored_bytes(network, name, ones)
            addresses[name] = frozenset(each for one in ones for each in one.planned.operations)
        fixed = parameter_bytes(network) - sum(one[bits] for one in sizes.values())
        inputs = calibration_inputs(batches, network, _SAMPLES)
        for name, energies in output_errors(network, inputs, hooks).items():
            harms.setdefault(name, {})[bits] = energies.error / (energies.signal or 1)
    weights = {
        name: WeightWidths(addresses=addresses[name], size_bytes=sizes[name], harms=harms[name])
        for name in sizes
    }
    return weights, fixed


def hooks_by_weight(network: NNCFNetwork) -> dict[str, frozenset[Quantizer]]:
    """Return the quantizers of each parameter, by the first of its names with a quantizer."""
    stored = dict(network.named_parameters(remove_duplicate=False))
    names: dict[int, str] = {}
    found: dict[str, frozenset[Quantizer]] = {}
    for site, hook in quantizers_of(network).items():
        if isinstance(site, WeightSite) and str(site) in stored:
            name = names.setdefault(id(stored[str(site)]), str(site))
            found[name] = found.get(name, frozenset()) | {hook}
    return found


def _stored_bytes(network: NNCFNetwork, name: str, hooks: frozenset[Quantizer]) -> float:
    """Return the bytes of integers, of scales in float32, and of zero points, with equal bits."""
    hook = next(iter(hooks))
    scales, bits = hook.scale.numel(), hook.spec.bits
    zeros = scales if hook.spec.mode == "asymmetric" else 0
    return (network.get_parameter(name).numel() + zeros) * bits / _BYTE + 4 * scales


def parameter_bytes(network: NNCFNetwork) -> int:
    """Return the bytes of all parameters, with quantized ones as integers."""
    hooks = hooks_by_weight(network)
    packed = {
        id(network.get_parameter(name)): _stored_bytes(network, name, hooks[name])
        for name in hooks
    }
    dense = ((id(one), one.numel() * one.element_size()) for one in network.parameters())
    return math.ceil(sum(packed.get(key, size) for key, size in dense))
