"""Round the weights of a quantized model in place, by GPTQ or by learning."""

import itertools
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nncfx.errors import require_known, shortened
from nncfx.float64 import float64_device
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork
from nncfx.operators import LINEAR_LAYERS, functions_of
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import MOST_BITS, QuantizerSpec
from nncfx.quantization.grid.stored_weights import sole_quantizers
from nncfx.quantization.preparation.layer_chains import Layer, find_layers
from nncfx.quantization.ranges.observation import (
    Note,
    probing,
    quantizers_of,
    run_batches,
    warn_if_none,
)
from nncfx.quantization.rounding.block_reconstruction import RoundingSettings, reconstruct_blocks
from nncfx.quantization.rounding.curvature import curvature
from nncfx.quantization.rounding.gptq import round_matrix
from nncfx.quantization.rounding.input_moments import input_moments
from nncfx.tracing import ExampleInputs, PreSite, Site, WeightSite
from nncfx.tracing.calls.module_check import parametrization_fix

Rounding = Literal["gptq", "adaptive"]
ROUNDINGS: tuple[Rounding, ...] = ("gptq", "adaptive")

_FUNCTIONS = LINEAR_LAYERS | functions_of("conv")
_MOST_AXES = 4  # of a weight: kernels of two axes
_WIDEST = 4096
"""Most inputs whose moments are computed together. Those of a wider layer (VGG's first linear
layer has 25,088) would fill the memory, so errors are compensated within parts of this width."""
_LOGGER = logging.getLogger(__name__)


def round_weights(
    model: NNCFNetwork,
    batches: Iterable[ExampleInputs],
    *,
    method: Rounding = "gptq",
    settings: RoundingSettings | None = None,
    most_bits: int = MOST_BITS,
    was_asked: bool = True,
) -> dict[str, float]:
    """Round weights, in place, such that the outputs of layers change little.

    Afterwards the parameters lie on the grids of their quantizers, which no longer change them.
    Linear layers, whichever function computes their product, and convolutions of one or two axes
    are rounded. A weight that is shared, has another hook or has a float8 grid is not changed; its
    quantizer rounds it to nearest. These weights are logged.

    Args:
        model: With calibrated quantizers; runs in evaluation mode.
        batches: Inputs of the model, at least one; "adaptive" holds all of them in memory.
        method: "gptq" reads all inputs once and solves each layer (`gptq.round_matrix`);
            "adaptive" starts from there and trains block by block, including biases and scales
            (`block_reconstruction.reconstruct_blocks`).
        settings: Settings of "adaptive".
        most_bits: Weights of more bits are left to their quantizers, which round to nearest.
        was_asked: Whether the user chose the method; only then log that there is nothing to do.

    Returns:
        By layer, the squared error of its output as a share of that of rounding to nearest, at
        most 1; if inputs are processed in parts, without terms between parts. For "adaptive" it
        is multiplied by the share of its block's error that remains.

    Raises:
        ArgumentError: `method` is unknown, or there are no batches.
        CompressionError: a layer's inputs are not finite.
    """
    require_known("rounding", method, ROUNDINGS)
    found = _roundable(model, most_bits)
    needs = "linear layer or convolution of 1 or 2 axes whose weight one quantizer alone changes"
    # if a preset chose the method, warn only if the user can do something about it
    fix = parametrization_fix(model).lstrip()
    warn_if_none(
        found,
        f"Rounding by '{method}'",
        needs,
        was_asked=was_asked or bool(fix),
        fix=fix or "Leave it out.",
    )
    if not found:
        return {}
    _warn_nearest(
        model, {WeightSite(one.layer.name, "weight") for one in found}, method, most_bits
    )
    if method == "gptq":
        return _by_moments(model, found, batches)
    return _learned(model, found, list(batches), settings or RoundingSettings())


@dataclass(frozen=True)
class _Rounded:
    """A layer whose weight is changed by one quantizer only."""

    address: str
    layer: Layer
    quantizer: Quantizer

    @property
    def grid(self) -> tuple[Tensor, Tensor]:
        """Scale and zero point."""
        return self.quantizer.scale.detach(), self.quantizer.zero_point

    @property
    def spec(self) -> QuantizerSpec:
        """The spec of the weight with the outputs on axis 0."""
        spec = self.quantizer.spec
        if not self.layer.is_turned:
            return spec
        return spec.replace(columns=False, axis=None if spec.axis is None else 0)

    @property
    def width(self) -> int:
        """Number of inputs that are processed together, a multiple of the group."""
        inputs, unit = self.layer.rows[0].numel(), self.spec.group or 1
        parts = -(-inputs // _WIDEST)
        return -(-inputs // (parts * unit)) * unit


def _warn_nearest(
    model: NNCFNetwork, rounded: set[WeightSite], method: str, most_bits: int
) -> None:
    """Log which matrices stay rounded to nearest."""
    quantizers, graph = quantizers_of(model), model.nncf.graph
    done = {quantizers[site] for site in rounded}
    left: dict[Quantizer, str] = {}
    for operation in graph.operations:
        for name in operation.parameters.values():
            quantizer = quantizers.get(WeightSite.of(name))
            if quantizer is None or quantizer in done:
                continue
            if quantizer.spec.bits <= most_bits:
                left.setdefault(quantizer, f"'{name}' ({operation.function})")
    products = [one for one in left.values() if "(embedding" not in one]
    if left:
        _LOGGER.log(
            logging.WARNING if products else logging.INFO,
            "%d of %d quantized weights are rounded to nearest, not by '%s': %s. It takes "
            "linear layers and convolutions of one or two axes whose weight nothing else reads "
            "or changes.",
            *(len(left), len(left) + len(done), method),
            shortened(products or list(left.values())),
        )


def _roundable(model: NNCFNetwork, most_bits: int) -> list[_Rounded]:
    quantizers = sole_quantizers(model)
    layers = find_layers(model, model.nncf.graph, _FUNCTIONS)
    return [
        _Rounded(address, layer, quantizer)
        for address, layer in layers.items()
        if (quantizer := quantizers.get(WeightSite(layer.name, "weight"))) is not None
        and not quantizer.spec.is_float8
        and quantizer.spec.bits <= most_bits
        and layer.weight.ndim <= _MOST_AXES
    ]


def _by_moments(
    model: NNCFNetwork, found: list[_Rounded], batches: Iterable[ExampleInputs]
) -> dict[str, float]:
    sums: dict[str, list[Tensor]] = {}

    def adding(one: _Rounded) -> Note:
        def note(entering: Tensor) -> None:
            found = input_moments(entering, one.layer.module, one.width)
            known = sums.get(one.address)
            sums[one.address] = (
                [a + b for a, b in zip(known, found, strict=True)] if known else found
            )

        return note

    notes: dict[Site, Note] = {PreSite(one.address, one.layer.port): adding(one) for one in found}
    with probing(model, notes):
        run_batches(model, batches)
    return {
        one.layer.name: _compensate(one, sums[one.address])
        for one in tracked(found, "Rounding weights")
    }


@torch.no_grad()
def _compensate(one: _Rounded, moments: list[Tensor]) -> float:
    """Round each part of a layer by GPTQ; return the share of the error that remains.

    `moments` are groups x i x i for each part of the inputs.
    """
    weight = one.layer.rows.contiguous()
    matrix = weight.flatten(1)
    errors = torch.zeros(2, dtype=torch.float64, device=float64_device(matrix))
    new, count = torch.empty_like(matrix), len(weight) // len(moments[0])
    for number, (part, moment) in itertools.product(range(len(moments[0])), enumerate(moments)):
        rows = slice(number * count, (number + 1) * count)
        columns = slice(part * one.width, (part + 1) * one.width)
        scale, zero_point = (_of_part(each, matrix, rows, columns, one.spec) for each in one.grid)
        known = curvature(moment[number])
        found = round_matrix(
            matrix[rows, columns].contiguous(), known, scale, zero_point, one.spec
        )
        new[rows, columns] = found.values
        errors += torch.stack([found.errors.sum(), found.nearest_errors.sum()])
    one.layer.take(new.view_as(weight))
    return float(errors[0] / errors[1]) if errors[1] > 0 else 1.0


def _of_part(
    value: Tensor, matrix: Tensor, rows: slice, columns: slice, spec: QuantizerSpec
) -> Tensor:
    """Return the scales or zero points in `value` of a part of `matrix`, o x i."""
    if spec.group is not None:
        groups = slice(columns.start // spec.group, -(-columns.stop // spec.group))
        return value.view(len(matrix), -1)[rows, groups].reshape(-1)
    return value if spec.axis is None else value[rows]


def _learned(
    model: NNCFNetwork,
    found: list[_Rounded],
    batches: list[ExampleInputs],
    settings: RoundingSettings,
) -> dict[str, float]:
    """Train from the result of GPTQ; return the shares of the errors of rounding to nearest."""
    floats = {name: one.detach().clone() for name, one in model.named_parameters()}
    shares = _by_moments(model, found, batches)
    names = [one.layer.name for one in found]
    learned = reconstruct_blocks(model, names, batches, floats, settings)
    return {name: share * learned.get(name, 1.0) for name, share in shares.items()}
