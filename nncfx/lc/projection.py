"""Compresses a copy, judges it, and keeps the best."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx.errors import CompressionError
from nncfx.lc.recovery import Recovered, RecoveryData, StepRecord
from nncfx.lc.training import minibatches
from nncfx.schemes import Scheme
from nncfx.tracing.calls.devices import on_device
from nncfx.tracing.calls.inputs import as_call
from nncfx.tracing.calls.model_copy import copy_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Projection:
    """A compressed model, and its decompressed copy."""

    compressed: nn.Module
    model: nn.Module


class Best:
    """The best projection so far, and the records of all."""

    def __init__(self) -> None:
        """Start without a projection."""
        self._found: tuple[float, Projection] | None = None
        self._history: list[StepRecord] = []

    def offer(self, projection: Projection, record: StepRecord) -> None:
        """Keep the record, and the projection if its metric exceeds all earlier ones."""
        if self._found is None or record.metric > self._found[0]:
            self._found = record.metric, projection
        self._history.append(record)

    @property
    def found(self) -> tuple[Projection, float]:
        """Return the best projection and its metric; at least one must have been offered."""
        assert self._found is not None, "every method offers direct compression first"  # noqa: S101 (impossible)
        metric, projection = self._found
        return projection, metric

    @property
    def history(self) -> tuple[StepRecord, ...]:
        """Return the records of all offers, in order."""
        return tuple(self._history)

    def restore(
        self, projection: Projection, metric: float, history: Sequence[StepRecord]
    ) -> None:
        """Restore the best projection and the records of an earlier process."""
        self._found = metric, projection
        self._history = list(history)

    def recovered(self) -> Recovered:
        """Return the best offer; there must be at least one."""
        projection, metric = self.found
        return Recovered(
            compressed=projection.compressed,
            model=projection.model,
            metric=metric,
            history=self.history,
        )


def project(model: nn.Module, scheme: Scheme, level: float) -> Projection:
    """Compress `model` in place; return it with a decompressed copy, both in eval mode.

    The copy has every parameter in its original dtype, even if the scheme restores another one (or
    none, like a plain function).
    """
    dtypes = {name: parameter.dtype for name, parameter in model.named_parameters()}
    scheme.compress(model, level)
    model.eval()
    working = copy_of(model)
    scheme.decompress(working)
    for name, parameter in working.named_parameters():
        parameter.data = parameter.detach().to(dtypes[name])
    return Projection(compressed=model, model=working)


def judge(projection: Projection, data: RecoveryData, recalibration_batches: int) -> float:
    """Return the metric of a compressed model, after recalibrating its batch norms if requested.

    Raises:
        CompressionError: the metric is NaN.
    """
    data.progress("judging")
    if recalibration_batches:
        _recalibrate(projection, data, recalibration_batches)
    with torch.no_grad():
        metric = float(data.validate(projection.model.eval()))
    if math.isnan(metric):
        raise CompressionError(
            "validate returned NaN for a compressed model, which cannot be compared. Check that "
            "the model's outputs are finite, or return the worst value for such a model."
        )
    return metric


@torch.no_grad()
def _recalibrate(projection: Projection, data: RecoveryData, count: int) -> None:
    """Re-estimate the statistics of batch norms, as plain means over `count` batches."""
    model = projection.model.eval()
    norms = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.track_running_stats
    }
    if not norms:
        return
    momenta = {name: norm.momentum for name, norm in norms.items()}
    for norm in norms.values():
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None
    device = next(model.parameters()).device
    for inputs, _ in itertools.islice(minibatches(data.train), count):
        args, kwargs = as_call(on_device(device, inputs))
        model(*args, **kwargs)
    for name, norm in norms.items():
        norm.momentum = momenta[name]
        norm.eval()
        projection.compressed.get_submodule(name).load_state_dict(
            dict(norm.named_buffers()), strict=False
        )
