"""The builder of quantization, which plans quantizers where the target computes in integers."""

import logging
from collections.abc import Sequence
from typing import Final, final

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from typing_extensions import override

from nncfx.algorithms.quantization.config import QuantizationConfig
from nncfx.algorithms.quantization.controller import QuantizationController
from nncfx.algorithms.quantization.from_config import plan_of_config
from nncfx.controllers import Builder, register_algorithm
from nncfx.controllers.base.weights import raw_parameters
from nncfx.graph import input_address
from nncfx.network import NNCFNetwork
from nncfx.quantization.placement.insertions import hooks_of, insertions_of, place_quantizers
from nncfx.quantization.placement.plan_model import warn_of_plan
from nncfx.tracing import Insertion

_LOGGER: Final = logging.getLogger(__name__)


@final
@register_algorithm(QuantizationConfig)
class QuantizationBuilder(Builder[QuantizationConfig]):
    """Plans quantizers on weights and activations by the hardware description."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        config = self.config
        hooks = place_quantizers(model, plan_of_config(config, model))
        constant = set(model.nncf.graph.addresses) - _changing(model)
        for one in hooks:
            section = config.weights if one.planned.role == "weight" else config.activations
            if one.spec.is_integer:
                one.learn(logarithmic=bool(section and section.logarithm_scale))
            tensors = one.planned.tensors
            if tensors and constant.issuperset(address for address, _ in tensors):
                # the model may cache the tensor; a second backward through it would fail
                one.requires_grad_(requires_grad=False)
        return insertions_of(hooks)

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> QuantizationController:
        """Return the controller; the quantizers have no ranges yet."""
        hooks = hooks_of(insertions)
        if hooks and hooks[0].plan is not None:  # all hooks share it
            warn_of_plan(hooks[0].plan)
        if any(one.planned.role != "weight" for one in hooks):
            _warn_new_norms(model)
        return QuantizationController(model, self.config, hooks)


def _changing(model: NNCFNetwork) -> set[str]:
    """Return the addresses of inputs, and of operations that depend on an input or parameter."""
    graph, learned = model.nncf.graph, raw_parameters(model).keys()
    found = {input_address(index) for index in range(len(graph.inputs))}
    found |= {one.address for one in graph.operations if learned & {*one.parameters.values()}}
    pending = list(found)
    while pending:
        new = {edge.target for edge in graph.outgoing(pending.pop())} - found
        found |= new
        pending += new
    return found


def _warn_new_norms(model: nn.Module) -> None:
    """Warn about batch norms whose statistics still have their initial values."""
    new = [
        name
        for name, one in model.named_modules()
        if isinstance(one, _BatchNorm)
        and one.running_mean is not None
        and one.num_batches_tracked is not None
        and not one.running_mean.is_meta
        and not one.num_batches_tracked
        and not one.running_mean.any()
    ]
    if new:
        _LOGGER.warning(
            "Batch norms that have seen no batch: %d, the first '%s'. Ranges of activations are "
            "taken in evaluation mode, and would not hold in training. Quantize a trained model, "
            "or run some batches in training mode before it is wrapped.",
            len(new),
            new[0],
        )
