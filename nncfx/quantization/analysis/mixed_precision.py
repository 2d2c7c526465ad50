"""Mixed precision: choose the width of each weight for the least error within a budget."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from torch import nn
from typing_extensions import override

from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, CompressionError
from nncfx.network import NNCFNetwork
from nncfx.quantization.analysis.width_candidates import (
    WidthCandidates,
    hooks_by_weight,
    measure_widths,
    parameter_bytes,
)
from nncfx.quantization.budgets import Bytes, Evaluate, Points, check_budget, metric_of
from nncfx.quantization.options import QuantizeOptions
from nncfx.quantization.placement.placement_options import SpecRequest
from nncfx.quantization.quantize import quantize
from nncfx.quantization.weight_only import quantize_weights

_BYTE: Final = 8
_CLOSE: Final = 0.01
"""The search ends at this relative difference of sizes."""


@dataclass(frozen=True, kw_only=True)
class MixedPrecision:
    """A model whose weights have several widths, and the models that were tried.

    Attributes:
        model: The quantized model.
        bits: Width of each weight, by name of its parameter.
        harms: For each width of each weight alone, the energy of the outputs' error over that of
            the outputs.
        size_bytes: Size of all parameters: integers at their bits, scales and float parameters.
        reference: The metric of the original model; None without `evaluate`.
        metric: The metric of `model`; None without `evaluate`.
        attempts: Size and metric of all models that were evaluated, in order.
    """

    model: NNCFNetwork
    bits: Mapping[str, int]
    harms: Mapping[str, Mapping[int, float]]
    size_bytes: int
    reference: float | None
    metric: float | None
    attempts: tuple[tuple[int, float], ...]

    @override
    def __str__(self) -> str:
        lines = [f"{self.size_bytes:,} bytes"]
        if self.metric is not None:
            lines[0] += f", metric {self.metric:.6g}, in float {self.reference:.6g}"
        width = max(map(len, self.bits))
        lines += [
            f"  {name:<{width}}  {bits} bits, "
            + ", ".join(f"{few}: {_decibels(one):.1f} dB" for few, one in self.harms[name].items())
            for name, bits in self.bits.items()
        ]
        return "\n".join(lines)


@tells_arguments(quantize, quantize_weights)
def quantize_mixed(  # noqa: PLR0913 (keyword-only, a front door)
    model: nn.Module,
    calibration_batches: Iterable[Any],
    budget: Bytes | Points,
    *,
    evaluate: Evaluate | None = None,
    widths: Sequence[int] = (8, 4),
    weights_only: bool = False,
    trials: int = 8,
    **options: Any,  # noqa: ANN401 (as quantize, or quantize_weights, takes them)
) -> MixedPrecision:
    """Quantize a copy of `model` with a width for each weight, chosen within a budget.

    The effect of each width of each weight on the outputs, rounded to nearest, is measured with
    all else in float. Effects are assumed to add up over weights, and an integer program finds the
    widths with the least sum whose size is within the budget.

    Args:
        model: A trained model without quantizers; it is not changed.
        calibration_batches: As in `quantize`; all are held in memory.
        budget: `Bytes(n)`: at most n bytes for all parameters, including scales of integers and
            float parameters; or `Points(d)`: the smallest model found whose metric is at most `d`
            lower than that of `model`.
        evaluate: Returns the metric of a model, higher is better; required for `Points`.
        widths: The bits that a weight can have; with `weights_only` 8 and 4.
        weights_only: Leave activations in float, as in `quantize_weights`.
        trials: Most models that are evaluated for `Points`.
        options: Options of `quantize` or `quantize_weights`, except the bits of weights and
            `inplace`.

    Raises:
        ArgumentError: a value is invalid; or as in `quantize`.
        CompressionError: no widths are within the budget; or as in `quantize`.
        MissingExtraError: SciPy is not installed.
    """
    choices = tuple(sorted(set(widths), reverse=True))
    _check(budget, evaluate, choices, trials, options, weights_only=weights_only)
    batches = list(calibration_batches)
    copies = _Copies(model, batches, options, weights_only)
    weights, fixed = measure_widths(choices, copies.alike, batches)
    candidates = WidthCandidates(
        choices=choices, weights=weights, fixed_bytes=fixed, build=copies.mixed
    )
    reference = None if evaluate is None else metric_of(evaluate, model)
    if isinstance(budget, Bytes):
        network = candidates.network(_within_bytes(candidates, budget))
        size = parameter_bytes(network)
        attempts = {} if evaluate is None else {size: metric_of(evaluate, network)}
    else:
        assert evaluate is not None  # noqa: S101 (checked)
        assert reference is not None  # noqa: S101 (it is there with evaluate)
        search = _Search(candidates, evaluate, reference - budget.drop)
        search.run(trials)
        attempts = search.attempts
        if search.smallest is None:
            raise CompressionError(
                f"No model is within {budget}: the metric is {reference:.6g} in float, and at "
                f"most {max(attempts.values()):.6g} among those tried. Allow more or wider "
                "weights; quantize_with_accuracy_control leaves layers in float."
            )
        network = search.smallest
        size = parameter_bytes(network)
    return MixedPrecision(
        model=network,
        bits={name: next(iter(one)).spec.bits for name, one in hooks_by_weight(network).items()},
        harms={name: one.harms for name, one in candidates.weights.items()},
        size_bytes=size,
        reference=reference,
        metric=attempts.get(size),
        attempts=tuple(attempts.items()),
    )


def _check(
    budget: object,
    evaluate: object,
    choices: Sequence[int],
    trials: int,
    options: Mapping[str, object],
    *,
    weights_only: bool,
) -> None:
    check_budget(budget, evaluate, "parameters")
    own = ("bits", "int8_scopes") if weights_only else ("weight_bits",)
    for name in (*own, "inplace"):
        if name in options:
            raise ArgumentError(
                f"{name} is given, and here each weight has its own bits, on a copy. Leave it "
                "out; widths= says which bits there are."
            )
    if weights_only and choices != (8, 4):
        raise ArgumentError(
            f"widths is {choices} with weights_only=True; runtimes take 8 and 4. Leave it out."
        )
    if len(choices) < 2 or trials < 1:  # noqa: PLR2004 (one is no choice)
        raise ArgumentError(
            f"There are {len(choices)} widths and {trials} trials; a choice needs at least 2 "
            "widths and 1 trial."
        )


@dataclass(frozen=True)
class _Copies:
    """Creates quantized copies of a model with given widths, and otherwise with `options`."""

    model: nn.Module
    batches: Sequence[Any]
    options: Mapping[str, Any]
    weights_only: bool

    def alike(self, bits: int) -> NNCFNetwork:
        """Return a copy with the same width for all weights, rounded to nearest."""
        if self.weights_only:
            return self._quantized(quantize_weights, bits=bits, method="round")
        return self._quantized(quantize, weight_bits=bits, preset="fast")

    def mixed(self, bits: Mapping[str, int]) -> NNCFNetwork:
        """Return a copy with these bits at these addresses."""
        if self.weights_only:
            wide = [address for address, one in bits.items() if one == _BYTE]
            return self._quantized(quantize_weights, bits=4, int8_scopes=wide)
        asked = self.options.get("options") or QuantizeOptions()
        overrides = [(address, SpecRequest(bits=one)) for address, one in bits.items()]
        overrides += asked.placement.weight_overrides
        placement = replace(asked.placement, weight_overrides=tuple(overrides))
        return self._quantized(quantize, options=replace(asked, placement=placement))

    def _quantized(self, call: Callable[..., NNCFNetwork], **changes: object) -> NNCFNetwork:
        return call(self.model, self.batches, **{**self.options, **changes})


class _Search:
    """Bisection over sizes for the smallest model whose metric is enough.

    Attributes:
        attempts: The metric of each size that was tried.
        smallest: The smallest model whose metric is enough.
    """

    def __init__(self, candidates: WidthCandidates, evaluate: Evaluate, least: float) -> None:
        self._candidates = candidates
        self._evaluate = evaluate
        self._least = least
        self.attempts: dict[int, float] = {}
        self.smallest: NNCFNetwork | None = None

    def run(self, trials: int) -> None:
        """Try up to `trials` models, first the smallest, then the largest."""
        widths = self._candidates.choices
        low, high = (
            self._candidates.size_bytes(self._candidates.alike(one))
            for one in (widths[-1], widths[0])
        )
        if self._is_enough(low) or trials == 1 or not self._is_enough(high):
            return
        while len(self.attempts) < trials and high > low * (1 + _CLOSE):
            middle = (low + high) // 2
            if self._is_enough(middle):
                high = middle
            else:
                low = middle

    def _is_enough(self, size_bytes: int) -> bool:
        bits = self._candidates.best(size_bytes)
        size = self._candidates.size_bytes(bits)
        if size not in self.attempts:
            network = self._candidates.network(bits)
            self.attempts[size] = metric_of(self._evaluate, network)
            if self.attempts[size] >= self._least:  # bisection only moves to smaller ones
                self.smallest = network
        return self.attempts[size] >= self._least


def _within_bytes(candidates: WidthCandidates, budget: Bytes) -> dict[str, int]:
    least = candidates.size_bytes(candidates.alike(candidates.choices[-1]))
    if budget.size_bytes < least:
        raise CompressionError(
            f"No widths are within {budget}: with all weights at {candidates.choices[-1]} bits "
            f"the parameters take {least} bytes, {candidates.fixed_bytes:.0f} of which are not "
            "quantized. Allow more, or prune the model first."
        )
    return candidates.best(budget.size_bytes)


def _decibels(share: float) -> float:
    return -10 * math.log10(share) if share else math.inf
