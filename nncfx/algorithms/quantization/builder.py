"""Quantization: quantizers where the target computes in integers."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.quantization.config import QuantizationConfig
from nncfx.algorithms.quantization.controller import QuantizationController
from nncfx.algorithms.quantization.from_config import plan_of_config, ranges_of_config
from nncfx.controllers import Builder, register_algorithm
from nncfx.network import NNCFNetwork
from nncfx.quantization import Quantizer
from nncfx.quantization.placement.insertions import (
    PlacedQuantizer,
    insertions_of,
    place_quantizers,
)
from nncfx.quantization.ranges.calibration import calibrate, set_weight_ranges
from nncfx.tracing import Insertion

__all__ = ["QuantizationBuilder"]


@final
@register_algorithm(QuantizationConfig)
class QuantizationBuilder(Builder[QuantizationConfig]):
    """Plans quantizers on weights and activations, as the hardware description has it."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        placed = place_quantizers(model, plan_of_config(self.config, model))
        for one in placed:
            self._learn(one)
        return insertions_of(placed)

    def _learn(self, placed: PlacedQuantizer) -> None:
        config = self.config
        section = config.weights if placed.planned.role == "weight" else config.activations
        if placed.hook.spec.is_integer:
            placed.hook.learn(logarithmic=bool(section and section.logarithm_scale))

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> QuantizationController:
        """Return the handle; activations have the ranges that the example inputs give."""
        plan = plan_of_config(self.config, model)
        hooks = {one.site: one.hook for one in insertions}
        placed = [
            PlacedQuantizer(one, hook, one.sites)
            for one in plan.quantizers
            if isinstance(hook := hooks.get(one.sites[0]), Quantizer)
        ]
        set_weight_ranges(model, placed, ranges_of_config(self.config, model.nncf.graph))
        float_operations: dict[str, int] = {}
        for each in plan.float_operations:
            what = f"{each.kind}: {each.reason}"
            float_operations[what] = float_operations.get(what, 0) + 1
        made = QuantizationController(model, self.config, placed, float_operations)
        calibrate(
            model,
            placed,
            [model.nncf.example_inputs],
            ranges_of_config(self.config, model.nncf.graph),
        )
        return made
