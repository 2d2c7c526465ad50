"""Thins a quantized model: removes its quantizers, thins it, and inserts them again."""

import copy
import logging
from collections.abc import Mapping, Sequence

import torch
from torch import nn

from nncfx.controllers.base.weights import constants_of
from nncfx.errors import ThinningError, error_text, machine_fault, shortened
from nncfx.network import NNCFNetwork, wrap
from nncfx.network.wrapping import view
from nncfx.quantization import Quantizer, integer_arithmetic
from nncfx.thinning.left_elements import gone_at
from nncfx.thinning.verification import default_tolerance, relative_error
from nncfx.tracing import ExampleInputs, Insertion, Priority, Site, WeightSite, run
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.hooks.dynamic_class import original_class
from nncfx.tracing.hooks.installation import unhooked

_LOGGER = logging.getLogger(__name__)

Entries = Mapping[tuple[str, int], tuple[int, ...]]


def is_quantized(model: nn.Module) -> bool:
    """Return whether a wrapped `model` has activation quantizers, which strip cannot bake in."""
    return isinstance(model, NNCFNetwork) and any(
        isinstance(one.hook, Quantizer) and not isinstance(one.site, WeightSite)
        for one in model.nncf.hooks
    )


def warn_quantized_attention(model: NNCFNetwork) -> None:
    """Log attention modules that are both pruned and quantized: `quantized_again` refuses them.

    Without some of its channels such a module becomes a `NarrowAttention`, whose operations differ
    from those that have the quantizers.
    """
    hooks = model.nncf.hooks
    attentions = [
        name
        for name, module in model.named_modules()
        if original_class(module) is nn.MultiheadAttention
    ]
    inner = {one.address: one.module for one in model.nncf.graph.operations}
    quantized = {
        inner[one.site.address]
        for one in hooks
        if isinstance(one.hook, Quantizer) and not isinstance(one.site, WeightSite)
    }
    pruned = {
        module
        for one in hooks
        if isinstance(one.site, WeightSite) and one.priority == Priority.PRUNING
        for module in (one.site.module, one.site.module.removesuffix(".out_proj"))
    }
    if both := [one for one in attentions if one in quantized & pruned]:
        _LOGGER.warning(
            "%s: torch's own attention is both pruned and quantized, and without some of its "
            "channels its operations differ: nncfx.thin will refuse this model. Leave "
            "quantization out here, and quantize what nncfx.thin returns.",
            shortened([f"'{one}'" for one in both]),
        )


def without_hooks(model: NNCFNetwork, kind: type[nn.Module]) -> NNCFNetwork:
    """Return a model that computes as `model` does without its hooks of one kind.

    Modules are copied; weights and the other hooks are those of `model` itself.
    """
    return view(model, [one for one in model.nncf.hooks if not isinstance(one.hook, kind)])


def quantized_again(
    thinned: nn.Module,
    entries: Entries,
    model: nn.Module,
    inputs: Sequence[ExampleInputs],
    tolerance: float | None,
) -> tuple[NNCFNetwork, float]:
    """Return `thinned` wrapped, with the quantizers of `model`, and its error against `model`.

    A quantizer with a scale per channel loses those of the removed channels; all others do not
    change. Both models run on `inputs` with the arithmetic of integer kernels, where a sum does
    not depend on its order: they agree to the last bit except for float operations.

    Args:
        thinned: the thin model, in float.
        entries: (parameter, axis) to the indices removed along that axis.
        model: the model before thinning; not changed.
        inputs: as the forward takes them.
        tolerance: the largest relative error accepted; None for the default.

    Raises:
        ThinningError: a quantizer cannot lose the channels, or the models differ.
    """
    assert isinstance(model, NNCFNetwork)  # noqa: S101 (is_quantized)
    lost = _lost(model, inputs, entries)
    copies: dict[int, Quantizer] = {}
    insertions = []
    for one in model.nncf.hooks:
        if not isinstance(one.hook, Quantizer):
            continue
        hook = copies.get(id(one.hook))
        if hook is None:
            hook = copies[id(one.hook)] = copy.deepcopy(one.hook)
            if one.site in lost:
                _narrow(hook, str(one.site), *lost[one.site])
        insertions.append(Insertion(one.site, hook, one.priority, one.algorithm))
    wrapped = wrap(thinned, inputs[0], further_inputs=inputs[1:])
    try:
        wrapped.nncf.register(insertions)
        wrapped.nncf.commit()
        error = max(_error(model, wrapped, one, tolerance) for one in inputs)
    except Exception as error_:
        if isinstance(error_, ThinningError) or machine_fault(error_) is not None:
            raise
        raise ThinningError(
            f"The thin model does not run with the quantizers of {type(model).__name__}: "
            f"{error_text(error_).rstrip('.')}. "
            "Thin before quantizing, and quantize the thin model."
        ) from error_
    return wrapped, error


def _lost(
    model: NNCFNetwork, inputs: Sequence[ExampleInputs], entries: Entries
) -> dict[Site, tuple[Sequence[int], dict[int, Sequence[int]]]]:
    """Return the shape of each tensor with a scale per channel, and what its axes lose."""
    sites = {
        one.site
        for one in model.nncf.hooks
        if isinstance(one.hook, Quantizer) and one.hook.scale.ndim
    }
    weights = {one for one in sites if isinstance(one, WeightSite)}
    shapes = {name: one.shape for name, one in constants_of(model).items()}
    found: dict[Site, tuple[Sequence[int], dict[int, Sequence[int]]]] = {
        site: (
            shapes[str(site)],
            {axis: taken for (name, axis), taken in entries.items() if name == str(site)},
        )
        for site in weights
    }
    if sites > weights:  # such as a weight that weight norm computes
        found |= gone_at(sites - weights, unhooked(model), inputs, entries)
    return found


def _narrow(
    hook: Quantizer, name: str, shape: Sequence[int], gone: Mapping[int, Sequence[int]]
) -> None:
    """Remove the scales of removed channels from a quantizer."""
    spec = hook.spec
    if not gone or (spec.axis is None and spec.group is None):
        return
    axis = int(spec.columns) if spec.axis is None else spec.axis % len(shape)
    if spec.group is not None and gone.keys() - {axis}:
        raise ThinningError(
            f"'{name}' is quantized in groups of {spec.group} neighbours, and removing some of "
            "its inputs would change the groups. Thin first, and quantize the thin model."
        )
    if axis not in gone:
        return
    kept = torch.ones(shape[axis], dtype=torch.bool, device="cpu")
    kept[list(gone[axis])] = False
    scales = torch.arange(hook.scale.numel(), device="cpu").reshape(shape[axis], -1)
    hook.take(scales[kept].flatten())


def _error(
    model: NNCFNetwork,
    thinned: NNCFNetwork,
    example_inputs: ExampleInputs,
    tolerance: float | None,
) -> float:
    outputs = []
    for one in (model, thinned):
        with preserved(one), integer_arithmetic(one):
            outputs.append(tensors_in(run(one.eval(), example_inputs)))
    expected, actual = outputs
    error = max(map(relative_error, expected, actual), default=0.0)
    accepted = default_tolerance(expected) if tolerance is None else tolerance
    if not error <= accepted:
        raise ThinningError(
            f"The thin model agrees in float, but with its quantizers it differs by {error:.1e}, "
            f"relative to the largest output; {accepted:.1e} is accepted. Nothing is changed. "
            "Thin before quantizing, or accept more: tolerance=..."
        )
    return error
