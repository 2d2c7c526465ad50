"""Quantize within an accuracy budget: layers that cost too much accuracy stay in float."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from typing_extensions import override

from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, CompressionError
from nncfx.network import NNCFNetwork
from nncfx.quantization.analysis.layer_error import layer_sensitivities
from nncfx.quantization.budgets import Evaluate, metric_of
from nncfx.quantization.quantize import quantize
from nncfx.quantization.ranges.calibration import calibration_inputs

_RANKING_SAMPLES = 32


@dataclass(frozen=True)
class Attempt:
    """A model that was tried: its number of layers in float, and its metric."""

    float_layers: int
    metric: float


@dataclass(frozen=True, kw_only=True)
class AccuracyControl:
    """A quantized model within its accuracy budget, and the models that were tried.

    Attributes:
        model: The model, quantized except `float_layers`.
        reference: The metric of the original model.
        metric: The metric of `model`.
        float_layers: Addresses of the layers left in float, worst first, each with the SQNR of
            the model's output, in dB, if only this layer is quantized.
        attempts: All models that were tried, in order.
    """

    model: NNCFNetwork
    reference: float
    metric: float
    float_layers: tuple[tuple[str, float], ...]
    attempts: tuple[Attempt, ...]

    @override
    def __str__(self) -> str:
        count = len(self.float_layers)
        lines = [
            f"metric {self.metric:.6g}, in float {self.reference:.6g}; {count} layers in float"
        ]
        lines += [f"  {address}: {sqnr:.1f} dB alone" for address, sqnr in self.float_layers]
        tried = ", ".join(f"{one.float_layers}: {one.metric:.6g}" for one in self.attempts)
        return "\n".join([*lines, f"tried (layers in float: metric): {tried}"])


@tells_arguments(quantize)
def quantize_with_accuracy_control(
    model: nn.Module,
    calibration_batches: Iterable[Any],
    evaluate: Evaluate,
    *,
    max_drop: float,
    ignored_scopes: Sequence[str] = (),
    **options: Any,  # noqa: ANN401 (as quantize takes them)
) -> AccuracyControl:
    """Quantize a copy of `model`, leaving layers in float if the metric requires it.

    If the metric of the quantized model is too low, layers are ranked by the error of the output
    if only one of them is quantized, and the worst are left in float: 1, 2, 4, ... until the
    metric is within the budget, then as few as bisection finds. This assumes that more layers in
    float are not worse than fewer, which usually holds. For each number of layers a new copy is
    calibrated and evaluated.

    Args:
        model: A trained model without quantizers; it is not changed.
        calibration_batches: As in `quantize`; all are held in memory.
        evaluate: Returns the metric of a model, higher is better; also called with the original.
        max_drop: How far the metric can fall below that of `model`, in its units.
        ignored_scopes: Operations that always stay in float.
        options: Options of `quantize`, except `inplace`.

    Raises:
        ArgumentError: `max_drop` is negative, `inplace` is true, `evaluate` does not return a
            number, or returns NaN for the original model; or as in `quantize`.
        CompressionError: the metric stays too low with all layers but one in float; or as in
            `quantize`.
    """
    if not max_drop >= 0:
        raise ArgumentError(
            f"max_drop is {max_drop}; it is how much the metric may lose and is at least 0. "
            "Write 0.01 for one point of an accuracy in [0, 1]."
        )
    if options.get("inplace"):
        raise ArgumentError(
            "inplace is True, and here each number of float layers is tried on a copy of the "
            "model. Leave it out; the result has the model."
        )
    batches = list(calibration_batches)
    reference = metric_of(evaluate, model)
    if math.isnan(reference):
        raise ArgumentError(
            "evaluate returned nan for the model in float, and nothing can be compared with "
            "that. Look at the metric, and at the data that it sees."
        )
    tried: dict[int, tuple[NNCFNetwork, float]] = {}

    def attempt(ranking: Sequence[str], count: int) -> bool:
        scopes = [*ignored_scopes, *ranking[:count]]
        network = quantize(model, batches, ignored_scopes=scopes, **options)
        tried[count] = network, metric_of(evaluate, network)
        return tried[count][1] >= reference - max_drop

    ranked: dict[str, float] = {}
    chosen = 0
    if not attempt((), 0):
        ranked = _ranked(tried[0][0], batches)
        chosen = _fewest(lambda count: attempt(list(ranked), count), len(ranked) - 1)
        if chosen < 0:
            best = max(metric for _, metric in tried.values())
            raise CompressionError(
                f"The metric is {reference:.6g} in float and at most {best:.6g} quantized, even "
                f"with {len(ranked) - 1} of {len(ranked)} layers in float; max_drop is "
                f"{max_drop:.6g}. Allow more, or calibrate with more data."
            )
    network, metric = tried[chosen]
    return AccuracyControl(
        model=network,
        reference=reference,
        metric=metric,
        float_layers=tuple(list(ranked.items())[:chosen]),
        attempts=tuple(Attempt(count, one[1]) for count, one in tried.items()),
    )


def _ranked(network: NNCFNetwork, batches: Iterable[Any]) -> dict[str, float]:
    """Return the SQNR of the output if only one layer is quantized, by layer, worst first."""
    inputs = calibration_inputs(batches, network, _RANKING_SAMPLES)
    found = layer_sensitivities(network, inputs)
    return dict(sorted(found.items(), key=lambda item: item[1]))


def _fewest(is_enough: Callable[[int], bool], most: int) -> int:
    """Return the least count in 1 to `most` that is enough, by doubling and bisection, or -1."""
    low, high = 0, 1
    while high <= most and not is_enough(high):
        low, high = high, min(2 * high, most) if high < most else most + 1
    if high > most:
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle
    return high
