"""Quantization: quantizers where the target computes in integers."""

import warnings
from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.quantization.config import QuantizationConfig
from nncfx.algorithms.quantization.controller import QuantizationController
from nncfx.algorithms.quantization.from_config import plan_of_config, ranges_of_config
from nncfx.controllers import Builder, register_algorithm
from nncfx.network import NNCFNetwork
from nncfx.quantization.placement.insertions import hooks_of, insertions_of, place_quantizers
from nncfx.quantization.ranges.calibration import calibrate, set_weight_ranges
from nncfx.tracing import Insertion

__all__ = ["QuantizationBuilder"]


@final
@register_algorithm(QuantizationConfig)
class QuantizationBuilder(Builder[QuantizationConfig]):
    """Plans quantizers on weights and activations, as the hardware description has it."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        config = self.config
        hooks = place_quantizers(model, plan_of_config(config, model))
        for one in hooks:
            section = config.weights if one.planned.role == "weight" else config.activations
            if one.spec.is_integer:
                one.learn(logarithmic=bool(section and section.logarithm_scale))
        return insertions_of(hooks)

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> QuantizationController:
        """Return the handle; activations have the ranges that the example inputs give."""
        hooks = hooks_of(insertions)
        ranges = ranges_of_config(self.config, model.nncf.graph)
        set_weight_ranges(model, hooks, ranges)
        made = QuantizationController(model, self.config, hooks)
        with warnings.catch_warnings():
            if self.config.calibration_samples:  # then data give other ranges, and tell of those
                warnings.simplefilter("ignore")
            calibrate(model, hooks, [model.nncf.example_inputs], ranges)
        return made
