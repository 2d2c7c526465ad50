"""Facts about the compressed network: operations, weights, sensitivity of layers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor, nn

from nncfx.evidence.network_facts import OperationFacts, WeightFacts
from nncfx.graph import NNCFGraph
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import tensors_in

_BINS: Final = 40
_FEW: Final = 64
"""The most distinct values to list; a codebook with more would not be readable."""

_CODEBOOK: Final = 256
_FORMS: Final = {torch.float16: ("float16", 16), torch.bfloat16: ("bfloat16", 16)}


def operation_facts(graph: NNCFGraph) -> tuple[OperationFacts, ...]:
    """Return the operations of a traced model in execution order."""
    position = {one.address: one.index for one in graph.operations}
    read: dict[str, list[int]] = {}
    for edge in graph.edges:
        read.setdefault(edge.target, []).append(position.get(edge.source, -1))
    return tuple(
        OperationFacts(
            address=one.address,
            module=one.module,
            inputs=tuple(dict.fromkeys(read.get(one.address, ()))),
            shape=" x ".join(map(str, one.outputs[0].shape)) if one.outputs else "",
        )
        for one in graph.operations
    )


def weight_facts(
    names: Iterable[str],
    models: tuple[nn.Module, nn.Module],
    dense: nn.Module,
    example_inputs: ExampleInputs,
) -> tuple[WeightFacts, ...]:
    """Return the facts about the weights of the layers `names`.

    Args:
        names: Dotted names of layers, in the order of the result; those missing in a model of
            `models` are left out.
        models: The compressed model twice: masked, not thinned, in the compressed number format;
            and as it runs, to count its values.
        dense: The original model; it is copied. A layer with another shape there has no
            `output_change`.
        example_inputs: Of `dense`.
    """
    masked, running = (dict(one.named_parameters(remove_duplicate=False)) for one in models)
    found = {
        name: masked[f"{name}.weight"]
        for name in names
        if f"{name}.weight" in masked and f"{name}.weight" in running
    }
    changes = _output_changes(found, dense, example_inputs)
    return tuple(
        replace(
            _facts(name, running[f"{name}.weight"].detach(), weight.dtype),
            output_change=changes.get(name),
        )
        for name, weight in found.items()
    )


def with_earlier_changes(
    facts: Iterable[WeightFacts], earlier: Iterable[WeightFacts]
) -> tuple[WeightFacts, ...]:
    """Return `facts`, with output changes from an earlier run if this one cannot measure them."""
    known = {one.module: one.output_change for one in earlier}
    return tuple(
        one if one.output_change is not None else replace(one, output_change=known.get(one.module))
        for one in facts
    )


def _facts(name: str, weight: Tensor, dtype: torch.dtype) -> WeightFacts:
    form, bits = _FORMS.get(dtype, (str(dtype).removeprefix("torch."), 32))
    values = weight.float().flatten()
    values = values[values.isfinite() & (values != 0)].cpu()
    distinct = torch.unique(values)
    code = max(1, math.ceil(math.log2(len(distinct) + 1)))  # zero is also a value
    # it is a codebook if codes and values are smaller than the numbers themselves
    has_codebook = (
        0 < len(distinct) <= _CODEBOOK
        and values.numel() * code + len(distinct) * bits < values.numel() * bits
    )
    if has_codebook:
        form, bits = f"{code}-bit codebook", code
    low, high = (values.min().item(), values.max().item()) if values.numel() else (0.0, 0.0)
    counts = torch.histc(values, _BINS, low, high) if high > low else values.new_zeros(0)
    return WeightFacts(
        module=name,
        precision=form,
        bits=bits,
        zeros=1 - values.numel() / max(weight.numel(), 1),
        low=low,
        high=high,
        counts=tuple(int(one) for one in counts.tolist()),
        values=tuple(distinct.tolist()) if has_codebook and len(distinct) <= _FEW else (),
    )


@torch.no_grad()
def _output_changes(
    weights: Mapping[str, Tensor], dense: nn.Module, example_inputs: ExampleInputs
) -> dict[str, float]:
    model = copy_of(dense).eval()
    own = dict(model.named_parameters(remove_duplicate=False))
    expected = _outputs(model, example_inputs)
    size = expected.norm().item()
    changes: dict[str, float] = {}
    for name, weight in weights.items():
        parameter = own.get(f"{name}.weight")
        if parameter is None or parameter.shape != weight.shape or not size:
            continue
        kept = parameter.clone()
        parameter.copy_(weight)
        change = (_outputs(model, example_inputs) - expected).norm().item() / size
        parameter.copy_(kept)
        if math.isfinite(change):
            changes[name] = change
    return changes


def _outputs(model: nn.Module, example_inputs: ExampleInputs) -> Tensor:
    found = [one.float().flatten() for one in tensors_in(run(model, example_inputs))]
    return torch.cat(found) if found else torch.zeros(0, device="cpu")
