"""Latency predicted from a table of measured modules, for fast searches."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from nncfx.errors import ArgumentError, RuntimeFailure, StorageError
from nncfx.graph import NNCFGraph, Operation
from nncfx.graph.macs import macs
from nncfx.json_codec import decode, encode, load_object
from nncfx.objectives import Objective
from nncfx.runtimes.timing.statistics import Array
from nncfx.tracing import ExampleInputs, trace

_FORMAT: Final = 1
_NEAREST: Final = 6
_RIDGE: Final = 1e-6
# The lowest prediction for a module, relative to its fastest measurement.
_FASTEST_SHARE: Final = 0.25


@dataclass(frozen=True)
class ModuleSample:
    """One measurement of a kind of module: its size and its time.

    Attributes:
        size: channels read, channels written, elements read, elements written, MACs.
        ms: median time in the runtime, including everything fused into it.
    """

    size: tuple[float, ...]
    ms: float


@dataclass(frozen=True, kw_only=True)
class LatencyTable:
    """Measured times of modules in one runtime on one machine.

    Modules of one kind (same function, kernel, stride and extent, any width) share their
    measurements. The time between them is interpolated: a linear function of the size, corrected
    to pass through the nearest measurements.

    Attributes:
        machine: runtime, version, threads, processor and how it multiplies bytes, in words.
        samples: measurements by kind.
        scale: the time of a whole run over the sum of its modules.
    """

    machine: Mapping[str, str]
    samples: Mapping[str, tuple[ModuleSample, ...]]
    scale: float

    def predict_ms(self, graph: NNCFGraph) -> float:
        """Return the predicted milliseconds of one call of the model of `graph`.

        Raises:
            RuntimeFailure: the table lacks a kind of module.
        """
        return self.scale * sum(self.module_ms(graph).values())

    def module_ms(self, graph: NNCFGraph) -> dict[str, float]:
        """Return the predicted milliseconds by dotted module name.

        Raises:
            RuntimeFailure: the table lacks a kind of module.
        """
        return {
            name: self._one(name, kind, size) for name, (kind, size) in _modules(graph).items()
        }

    def to_json(self) -> str:
        """Return the table as JSON text; `from_json` reads it."""
        return json.dumps({"latency_table": _FORMAT, **encode(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> "LatencyTable":
        """Return the table that `to_json` wrote.

        Raises:
            StorageError: `text` is not a table, or has another version.
        """
        try:
            found = load_object(text, "latency table")
            version = found.pop("latency_table", None)
            if version in (_FORMAT, None):  # without a version it is something else
                return decode(cls, found)
        except StorageError as error:
            raise StorageError(
                f"This is not a latency table: {error} Write tables with LatencyTable.to_json."
            ) from error
        raise StorageError(
            f"The latency table is of version {version!r:.60}; this nncfx reads "
            f"version {_FORMAT}. Measure it again."
        )

    def _one(self, name: str, kind: str, size: tuple[float, ...]) -> float:
        if kind not in self.samples:
            raise RuntimeFailure(
                f"The latency table has no measurement of '{name or 'the model itself'}', "
                f"{kind}. Measure the table on variants of this very model."
            )
        return _interpolated(self.samples[kind], size)


def fitted_table(
    graphs: Sequence[NNCFGraph],
    module_ms: Sequence[Mapping[str, float]],
    run_ms: Sequence[float],
    *,
    machine: Mapping[str, str],
) -> LatencyTable:
    """Return the table of measurements on several variants of a model.

    The scale is the median over the variants of the run time over the sum of its modules, which is
    robust against a disturbed measurement.

    Args:
        graphs: of each variant, traced on the example inputs.
        module_ms: for each, the milliseconds by module, from `Profile.layers`.
        run_ms: for each, the milliseconds of a whole run without profiling.
        machine: facts to keep with the table.

    Raises:
        ArgumentError: the three have different lengths, or fewer than two entries, or a profile
            has no time for any module.
    """
    if len(graphs) < 2 or not len(graphs) == len(module_ms) == len(run_ms):  # noqa: PLR2004 (a line)
        raise ArgumentError(
            f"There are {len(graphs)} graphs, {len(module_ms)} profiles and {len(run_ms)} runs; "
            "a table needs as many of each, and two at least."
        )
    samples: dict[str, list[ModuleSample]] = defaultdict(list)
    for graph, times in zip(graphs, module_ms, strict=True):
        for name, (kind, size) in _modules(graph).items():
            samples[kind].append(ModuleSample(size, times.get(name, 0.0)))
    table = LatencyTable(
        machine=dict(machine),
        samples={kind: tuple(several) for kind, several in samples.items()},
        scale=1.0,
    )
    sums = np.array([table.predict_ms(graph) for graph in graphs])
    if not sums.all():
        raise ArgumentError(
            "The profiles give no time to any module of some graph; their names must be the "
            "dotted names of its modules."
        )
    return replace(table, scale=float(np.median(np.array(run_ms) / sums)))


def predicted_latency(table: LatencyTable, example_inputs: ExampleInputs) -> Objective:
    """Return an objective for searches that predicts the latency instead of measuring it.

    Each candidate is traced on `example_inputs`; nothing is exported or run.
    """

    def measured(subject: Any) -> float:  # noqa: ANN401 (any subject with a model)
        return table.predict_ms(trace(subject.model, example_inputs))

    return Objective("predicted latency", "ms", maximize=False, measure=measured)


def _modules(graph: NNCFGraph) -> dict[str, tuple[str, tuple[float, ...]]]:
    """Return the kind and the size of each module that computes, by dotted name."""
    operations: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph.operations:
        if operation.outputs and operation.inputs:
            operations[operation.module].append(operation)
    products = macs(graph)
    return {name: _described(several, products) for name, several in operations.items()}


def _described(
    operations: Sequence[Operation], products: Mapping[str, int]
) -> tuple[str, tuple[float, ...]]:
    words = []
    size = np.zeros(5)
    for operation in operations:
        read = [
            tensor
            for port, tensor in enumerate(operation.inputs)
            if tensor is not None and port not in operation.parameters
        ]
        shapes = [tensor.shape for tensor in (*read, *operation.outputs)]
        words.append(f"{operation.function}{_kernel(operation)}{[_extent(one) for one in shapes]}")
        size += (
            sum(_channels(tensor.shape) for tensor in read),
            sum(_channels(tensor.shape) for tensor in operation.outputs),
            sum(tensor.elements for tensor in read),
            sum(tensor.elements for tensor in operation.outputs),
            products.get(operation.address, 0),
        )
    return " + ".join(words), tuple(size.tolist())


def _kernel(operation: Operation) -> str:
    """Return kernel and grouping of a convolution: `(3, 3)`, or `(3, 3) depthwise`."""
    weights = [operation.inputs[port] for port in operation.parameters]
    weight = next((one for one in weights if one is not None and len(one.shape) > 2), None)  # noqa: PLR2004 (has a kernel)
    given = operation.inputs[0]
    if weight is None or given is None:
        return ""
    groups = _channels(given.shape) // max(weight.shape[1], 1)
    if groups == 1:
        return f"{weight.shape[2:]}"
    grouping = "depthwise" if groups == _channels(given.shape) else f"{groups} groups"
    return f"{weight.shape[2:]} {grouping}"


def _channels(shape: tuple[int, ...]) -> int:
    """Return the width: axis 1 of images, the last axis of everything else."""
    if not shape:
        return 1
    return shape[1] if len(shape) > 3 else shape[-1]  # noqa: PLR2004 (n x c x h x w)


def _extent(shape: tuple[int, ...]) -> str:
    """Return the shape without its width."""
    rest = (shape[0], *shape[2:]) if len(shape) > 3 else shape[:-1]  # noqa: PLR2004 (n x c x h x w)
    return "x".join(map(str, rest))


def _interpolated(samples: Sequence[ModuleSample], size: tuple[float, ...]) -> float:
    """Return the time of a module of this size, interpolated from nearby measurements."""
    sizes = np.array([sample.size for sample in samples])
    times = np.array([sample.ms for sample in samples])
    least = float(times.min())
    if not times.any():
        return 0.0
    scale = np.maximum(np.abs(sizes).max(axis=0), 1.0)
    fit = _linear(sizes / scale, times)
    wanted = np.array(size) / scale
    floor = max(_FASTEST_SHARE * least, 1e-9)
    guesses = np.maximum(_value(fit, sizes / scale), floor)
    distance = np.linalg.norm(np.log1p(sizes) - np.log1p(np.array(size)), axis=1)
    near = np.argsort(distance, kind="stable")[:_NEAREST]
    weight = 1.0 / (distance[near] + 1e-3)
    bend = float(np.average(times[near] / guesses[near], weights=weight))
    return max(float(_value(fit, wanted[None])[0]), floor) * bend


def _linear(sizes: Array, times: Array) -> Array:
    """Return the coefficients of a linear function of size; ridge handles collinear sizes."""
    design = np.concatenate([np.ones((len(sizes), 1)), sizes], axis=1)
    normal = design.T @ design + _RIDGE * len(sizes) * np.eye(design.shape[1])
    found: Array = np.linalg.solve(normal, design.T @ times)
    return found


def _value(fit: Array, sizes: Array) -> Array:
    found: Array = fit[0] + sizes @ fit[1:]
    return found
