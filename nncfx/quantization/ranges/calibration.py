"""Set the ranges of quantizers from calibration data and weights."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn

from nncfx.controllers.base.weights import constants_of
from nncfx.controllers.loops.batch_norm_adaptation import examples_in
from nncfx.errors import ArgumentError, CompressionError, shortened
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork, inputs_in
from nncfx.quantization.grid.fake_quantize import rows_of
from nncfx.quantization.grid.plan import PlannedQuantizer
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.ranges.half_quadratic import half_quadratic_grid
from nncfx.quantization.ranges.observation import in_float, no_batches, probing, run_batches
from nncfx.quantization.ranges.range_estimation import RangeRequest, range_from, statistic_for
from nncfx.quantization.ranges.range_shares import best_shares
from nncfx.quantization.ranges.statistics import TensorStatistic
from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.sharded_models import is_distributed
from nncfx.tracing import ExampleInputs, Site

_Batch = TypeVar("_Batch")
_INSTEAD_OF_INFINITY: Final = 1e9
"""From here on, activations stand for infinity: -1e9 and the smallest float32 are usual."""
RangeOf = Callable[[PlannedQuantizer], RangeRequest]


def calibration_inputs(
    batches: Iterable[Any], model: nn.Module, samples: int
) -> Iterator[ExampleInputs]:
    """Yield the inputs that `inputs_in` finds in `batches`, until there are `samples` examples.

    Batches are not split; empty ones are skipped. `model` determines the number of inputs.

    Raises:
        ArgumentError: a batch has an unknown form, all are empty, or `samples` is below 1.
    """
    if samples < 1:
        raise ArgumentError(f"samples is {samples}; calibration sees at least 1 example.")
    found = first_examples((inputs_in(batch, model) for batch in batches), samples)
    first = next(found, None)
    if first is None:
        raise no_batches()
    yield first
    yield from found


def first_examples(inputs: Iterable[_Batch], count: int) -> Iterator[_Batch]:
    """Yield whole batches until there are `count` examples; empty batches are skipped."""
    seen = 0
    for batch in inputs:
        examples = examples_in(batch)
        if not examples:  # statistics of nothing are NaN
            continue
        yield batch
        seen += examples
        if seen >= count:
            return


def calibrate(
    model: NNCFNetwork,
    hooks: Iterable[Quantizer],
    batches: Iterable[ExampleInputs],
    range_of: RangeOf,
) -> list[Quantizer]:
    """Run `model` on `batches` and set the ranges of the activation quantizers among `hooks`.

    The model runs once on each batch, in evaluation mode and with its quantizers switched off.
    With `torch.distributed`, each process runs its own data and all get the same ranges.

    Returns:
        Quantizers that get no range, because numbers in place of infinity pass them, as masks
        add: a grid that covers these has no steps for other numbers.

    Raises:
        ArgumentError: there is no batch.
        CompressionError: an activation is NaN or infinite.
    """
    wanted = [one for one in hooks if one.planned.role == "activation"]
    requests = [range_of(one.planned) for one in wanted]
    statistics = [
        statistic_for(request, one.planned.spec.axis)
        for request, one in zip(requests, wanted, strict=True)
    ]
    notes: dict[Site, Callable[[Tensor], None]] = {
        site: _noting(statistic)
        for statistic, one in zip(statistics, wanted, strict=True)
        for site in one.planned.sites
    }
    with in_float(wanted), probing(model, notes):
        run_batches(model, tracked(batches, "calibrating"))
    statistics = _of_all_processes(statistics)
    masked = []
    for one, statistic, request in zip(wanted, statistics, requests, strict=True):
        if _is_masked(statistic):
            masked.append(one)
        else:
            _settle(one, statistic, request)
    zero = [
        f"'{one.planned.name}'"
        for one, statistic in zip(wanted, statistics, strict=True)
        if _is_zero(statistic)
    ]
    if zero:
        warnings.warn(
            f"The activation at {shortened(zero, 1)} is zero on all calibration data; its range "
            "is taken as -1 to 1. Where its layer begins with weights of 0, nothing is wrong; "
            "else calibrate with other data, or remove the dead channels: nncfx.thin (a branch "
            "that was pruned whole leaves one, which ONNX files do without).",
            stacklevel=3,
        )
    return masked


def _is_masked(statistic: TensorStatistic) -> bool:
    if statistic.is_empty or statistic.has_nan:
        return False
    return bool((torch.maximum(-statistic.low, statistic.high) >= _INSTEAD_OF_INFINITY).any())


def _is_zero(statistic: TensorStatistic) -> bool:
    return bool((statistic.low == 0).all() & (statistic.high == 0).all())


def _noting(statistic: TensorStatistic) -> Callable[[Tensor], None]:
    def note(x: Tensor) -> None:
        if x.is_floating_point():
            statistic.update(x.detach())  # a forward can enable gradients

    return note


def _of_all_processes(statistics: list[TensorStatistic]) -> list[TensorStatistic]:
    if not is_distributed():
        return statistics
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, statistics)
    merged: list[TensorStatistic] = gathered[0]
    for others in gathered[1:]:
        for statistic, other in zip(merged, others, strict=True):
            statistic.merge(other)
    return merged


def _settle(hook: Quantizer, statistic: TensorStatistic, request: RangeRequest) -> None:
    """Set the range of a quantizer from `statistic`, and its sign if the data decide it."""
    name = hook.planned.name
    if statistic.is_empty:
        raise CompressionError(
            f"Nothing passed '{name}' during calibration, so its range is not known. Calibrate "
            "with inputs that reach it, or ignore its scope: a loop whose length depends on "
            "values may end before it."
        )
    if statistic.has_nan:
        raise CompressionError(
            f"The activation at '{name}' is NaN or infinite on the calibration data, so it has no "
            "range. Look at the data and at the model in float; "
            "torch.autograd.detect_anomaly may help."
        )
    if hook.planned.is_sign_open:
        is_signed = bool((statistic.low < 0).any())
        hook.spec = hook.spec.replace(signed=is_signed)
    low, high = range_from(statistic, request, hook.spec)
    if _is_zero(statistic):
        low, high = low - 1, high + 1
    device = hook.step.device
    hook.set_range(low.to(device), high.to(device))


def set_weight_ranges(model: NNCFNetwork, hooks: Sequence[Quantizer], range_of: RangeOf) -> None:
    """Set the ranges of weight quantizers from their weights; other hooks are not changed.

    If a weight is computed in the forward, the model runs once on its example inputs.

    Raises:
        CompressionError: a weight is NaN or infinite.
    """
    wanted = [one for one in hooks if one.planned.role == "weight"]
    weights = {**constants_of(model), **_computed_weights(model, hooks)}
    for one in wanted:
        name = one.planned.parameter or one.planned.name
        try:
            request = range_of(one.planned)
            one.set_range(*weight_range(weights[name].detach(), request, one.planned.spec))
        except CompressionError as error:
            raise CompressionError(f"'{name}': {error}") from error


def set_sparse_errors(model: NNCFNetwork, hooks: Sequence[Quantizer]) -> None:
    """Move the grids of weights so that errors are sparse (`half_quadratic_grid`)."""
    wanted = [one for one in hooks if one.planned.role == "weight"]
    weights = {**constants_of(model), **_computed_weights(model, hooks)}
    for one in wanted:
        weight = wide(weights[one.planned.parameter or one.planned.name].detach())
        spec = one.planned.spec
        rows = _rows(weight, spec)
        by_row = spec.replace(axis=0, group=None, columns=False)
        start = one.step.reshape(-1), one.zero.reshape(-1)
        scale, zero = half_quadratic_grid(rows.reshape(len(rows), -1), start, by_row)
        one.set_qparams(scale.view_as(one.step), zero.view_as(one.zero))


def _computed_weights(model: NNCFNetwork, hooks: Sequence[Quantizer]) -> Mapping[str, Tensor]:
    """Return the weights that the forward computes, by the names of their quantizers."""
    computed = [one for one in hooks if one.planned.role == "weight" and not one.planned.parameter]
    found: dict[str, Tensor] = {}
    if computed:
        notes = {
            site: partial(found.__setitem__, one.planned.name)
            for one in computed
            for site in one.planned.sites
        }
        with in_float(hooks), probing(model, notes):
            run_batches(model, [model.nncf.example_inputs])
    return found


def weight_range(
    weight: Tensor, request: RangeRequest, spec: QuantizerSpec
) -> tuple[Tensor, Tensor]:
    """Return the range of a weight, or a range for each index of `spec.axis` or each group.

    A weight has no examples, so methods that average over examples use the extremes.

    Raises:
        CompressionError: an entry is NaN or infinite, or the weight is on the meta device.
    """
    if weight.is_meta:
        raise CompressionError(
            "The weight is on the 'meta' device, where it has no values. Load them."
        )
    if request.method in ("min_max", "mean_min_max", "mixed_min_max", "mean_percentile"):
        request = RangeRequest(method="min_max")
    weight = wide(weight)
    rows = _rows(weight, spec)
    single = spec.replace(axis=None, group=None, columns=False)
    if request.method in ("min_max", "mse_shares"):
        flat = rows.reshape(len(rows), -1)
        is_whole = request.method == "min_max"
        share = 1 if is_whole else best_shares(flat, single.replace(axis=0))
        low, high = flat.amin(1) * share, flat.amax(1) * share
    else:
        ends = [_one_range(one, request, single) for one in rows]
        low, high = (torch.stack(each) for each in zip(*ends, strict=True))
    if not bool(torch.isfinite(low).all() & torch.isfinite(high).all()):
        raise CompressionError(
            "The weight is NaN or infinite, so it has no range. Load the trained weights again."
        )
    is_single = spec.axis is None and spec.group is None
    return (low[0], high[0]) if is_single else (low, high)


def _rows(weight: Tensor, spec: QuantizerSpec) -> Tensor:
    """Return the weight with the elements of each scale under one index of axis 0."""
    if spec.group is not None:
        return rows_of(weight, spec)
    return weight.unsqueeze(0) if spec.axis is None else weight.movedim(spec.axis, 0)


def _one_range(row: Tensor, request: RangeRequest, spec: QuantizerSpec) -> tuple[Tensor, Tensor]:
    statistic = statistic_for(request)
    statistic.update(row)
    return range_from(statistic, request, spec)
