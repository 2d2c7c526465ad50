"""The layer-by-layer table: channels, MACs, non-zeros and time, before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from nncfx.evidence.evidence import LayerRow
from nncfx.graph.macs import macs
from nncfx.tracing import ExampleInputs, trace


@dataclass(frozen=True, kw_only=True)
class _Layer:
    kind: str
    kernel: str
    in_channels: int
    out_channels: int
    macs: int
    nonzero: int


_GONE = _Layer(kind="", kernel="", in_channels=0, out_channels=0, macs=0, nonzero=0)


def layer_rows(
    before: torch.nn.Module,
    after: torch.nn.Module,
    example_inputs: ExampleInputs,
    times_ms: tuple[Mapping[str, float], Mapping[str, float]] = ({}, {}),
) -> tuple[LayerRow, ...]:
    """Return a row for each module of `before` that multiplies by a weight, in execution order.

    `times_ms` maps dotted module names to milliseconds, before and after; a layer without an entry
    has no time. A layer missing in `after` has zeros. MACs are of one forward on `example_inputs`.

    Source: Condensa (Joseph et al., 2019), Table 3.
    """
    rows = []
    smaller = _layers(after, example_inputs)
    for name, dense in _layers(before, example_inputs).items():
        thin = smaller.get(name, _GONE)
        rows.append(
            LayerRow(
                module=name,
                kind=dense.kind,
                kernel=dense.kernel,
                in_channels_before=dense.in_channels,
                in_channels_after=thin.in_channels,
                channels_before=dense.out_channels,
                channels_after=thin.out_channels,
                macs_before=dense.macs,
                macs_after=thin.macs,
                nonzero_before=dense.nonzero,
                nonzero_after=thin.nonzero,
                time_before_ms=times_ms[0].get(name),
                time_after_ms=times_ms[1].get(name),
            )
        )
    return tuple(rows)


def _layers(model: torch.nn.Module, example_inputs: ExampleInputs) -> dict[str, _Layer]:
    graph = trace(model, example_inputs)
    counts: dict[str, int] = {}
    by_address = macs(graph)
    for operation in graph.operations:
        if by_address.get(operation.address):
            counts[operation.module] = (
                counts.get(operation.module, 0) + by_address[operation.address]
            )
    parameters = dict(model.named_parameters())
    layers = {}
    for name, count in counts.items():
        weight = parameters.get(f"{name}.weight" if name else "weight")
        if weight is not None and weight.dim() > 1:
            layers[name] = _layer(model.get_submodule(name), weight, count)
    return layers


def _layer(module: torch.nn.Module, weight: torch.Tensor, count: int) -> _Layer:
    groups = getattr(module, "groups", 1)  # a linear layer has none
    # A transposed convolution has its input channels first.
    o, i = weight.shape[0], weight.shape[1]
    if getattr(module, "transposed", False):
        o, i = i * groups, o
    else:
        i = i * groups
    return _Layer(
        kind=type(module).__name__,
        kernel=" x ".join(str(k) for k in weight.shape[2:]),
        in_channels=i,
        out_channels=o,
        macs=count,
        nonzero=sum(int(p.count_nonzero()) for p in module.parameters(recurse=False)),
    )
