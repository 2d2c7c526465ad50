"""The controller of quantization-aware training.

Source: NNCF 2.19, "Quantization"; Jacob et al., "Quantization and training of neural networks for
efficient integer-arithmetic-only inference", 2018.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from typing_extensions import override

from nncfx.algorithms.quantization.config import QuantizationConfig, StagedQuantization
from nncfx.algorithms.quantization.from_config import ranges_of_config
from nncfx.algorithms.quantization.statistics import (
    OptimizerSettings,
    QuantizationStatistics,
    QuantizerStatistics,
)
from nncfx.controllers import CompressionStage, Controller
from nncfx.controllers.base.states import CONTROLLER, check_keys
from nncfx.errors import CompressionError, StorageError, shortened
from nncfx.network import NNCFNetwork
from nncfx.operators import OTHER
from nncfx.quantization import Quantizer
from nncfx.quantization.grid.plan import FloatOperation
from nncfx.quantization.ranges.calibration import calibrate, calibration_inputs, set_weight_ranges

ALGORITHM = QuantizationConfig.algorithm
_LOGGER: Final = logging.getLogger(__name__)
_POWER: Final = 0.9
"""Exponent of the polynomial decay of the learning rate."""


@final
class QuantizationController(Controller):
    """Activates quantizers by the schedule; it has no level.

    Attributes:
        config: The algorithm's config.
        hooks: The quantizers, which share one plan.
    """

    has_level: bool = False

    def __init__(
        self, model: NNCFNetwork, config: QuantizationConfig, hooks: Sequence[Quantizer]
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.hooks = tuple(hooks)
        self._epoch_begun(0 if config.params is None else -1)

    @override
    def initialize(self) -> None:
        """Set the ranges of weights, and those of activations if the config asks for no data."""
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        ranges = ranges_of_config(self.config, self.model.nncf.graph)
        set_weight_ranges(self.model, self.hooks, ranges)
        if not self.config.calibration_samples:
            _require_ranges(
                calibrate(self.model, self.hooks, [self.model.nncf.example_inputs], ranges)
            )

    @override
    def calibrate(self, batches: Iterable[Any]) -> None:
        """Set the ranges of activations from `batches`.

        Raises:
            ArgumentError: there is no batch, or a batch has an unknown form.
            CompressionError: an activation is NaN, or infinite as masks are.
        """
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        samples = max(self.config.calibration_samples, 1)
        inputs = calibration_inputs(batches, self.model, samples)
        ranges = ranges_of_config(self.config, self.model.nncf.graph)
        _require_ranges(calibrate(self.model, self.hooks, inputs, ranges))

    @override
    def _epoch_begun(self, epoch: int) -> None:
        params = self.config.params
        for one in self.hooks:
            if params is None:
                one.is_active = True
                continue
            starts = {
                "activation": params.activations_quant_start_epoch,
                "weight": params.weights_quant_start_epoch,
            }
            one.is_active = epoch >= starts[one.planned.role]
            freeze = params.ranges_freeze_epoch
            if freeze is not None and epoch >= freeze:
                for parameter in one.parameters():
                    parameter.requires_grad_(False)
                    parameter.grad = None

    @override
    def compression_stage(self) -> CompressionStage:
        active = [one.is_active for one in self.hooks]
        if all(active):
            return CompressionStage.FULLY_COMPRESSED
        return (
            CompressionStage.PARTIALLY_COMPRESSED if any(active) else CompressionStage.UNCOMPRESSED
        )

    def optimizer_settings(self, epoch: float) -> OptimizerSettings:
        """Return the learning rate and weight decay of the staged schedule at `epoch`.

        The learning rate is `base_lr` until `lr_poly_drop_start_epoch`; then it decays to 0 as
        `(1 - t / duration)^0.9`. Without `params`, the defaults of these keys are used.
        """
        params = self.config.params or StagedQuantization()
        lr, decay = params.base_lr, params.base_wd
        start = params.lr_poly_drop_start_epoch
        if start is not None and epoch > start:
            progress = (epoch - start) / max(params.lr_poly_drop_duration_epochs, 1)
            lr *= max(1 - progress, 0.0) ** _POWER
        stop = params.disable_wd_start_epoch
        if stop is not None and epoch >= stop:
            decay = 0.0
        return OptimizerSettings(
            lr=lr, weight_decay=decay, batch_multiplier=params.batch_multiplier
        )

    @override
    def _settle(self, model: NNCFNetwork) -> None:
        for module in model.modules():
            if isinstance(module, Quantizer):
                module.freeze()

    @override
    def statistics(self) -> QuantizationStatistics:
        plan = self.hooks[0].plan
        in_float = () if plan is None else plan.float_operations
        kinds = Counter(f"{_called(one)}: {one.reason}" for one in in_float)
        return QuantizationStatistics(
            target="" if plan is None else plan.hardware,
            quantizers=tuple(
                QuantizerStatistics(
                    name=one.planned.name,
                    role=one.planned.role,
                    bits=one.spec.bits,
                    mode=one.spec.mode,
                    scales=one.step.numel(),
                    is_active=one.is_active,
                )
                for one in self.hooks
            ),
            float_operations=dict(kinds),  # asdict cannot rebuild a Counter
            unread=self.unread,
        )

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the schedule state, whether each grid is signed, and all bits."""
        signed = {one.planned.name: one.spec.signed for one in self.hooks}
        bits = [one.spec.bits for one in self.hooks]
        return super().state_dict() | {"signed": signed, "bits": bits}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        # states of 0.1 have no bits
        keys = (*CONTROLLER, "signed")
        check_keys(state, keys, f"The state of '{ALGORITHM}'", optional=("bits",))
        names = [one.planned.name for one in self.hooks]
        fix = (
            "Where the number of operations depends on values, as in a loop with a stop rule, "
            "pass the example_inputs used then."
        )
        check_keys(state["signed"], names, "The table of the quantizers' signs", fix)
        if not all(isinstance(one, bool) for one in state["signed"].values()):
            raise StorageError(
                f"The table of the quantizers' signs in the state of '{ALGORITHM}' is damaged: "
                "each is true or false. Write the file again."
            )
        super().load_state_dict({key: state[key] for key in CONTROLLER})
        for one in self.hooks:
            one.spec = one.spec.replace(signed=state["signed"][one.planned.name])
        self._warn_other_bits(state.get("bits"))
        self._epoch_begun(self.scheduler.current_epoch)

    def _warn_other_bits(self, loaded: object) -> None:
        """Warn if the loaded steps belong to grids of other bits."""
        found = loaded if isinstance(loaded, list) else []
        other = [
            f"'{hook.planned.name}' {bits}, here {hook.spec.bits}"
            for hook, bits in zip(self.hooks, found, strict=False)
            if bits != hook.spec.bits
        ]
        if other:
            _LOGGER.warning(
                "The loaded state has quantizers of other widths, whose steps do not fit these: "
                "%s. Build the model with the config of the one that was saved.",
                shortened(other, 1),
            )


def _require_ranges(masked: Sequence[Quantizer]) -> None:
    """Refuse activations that reach numbers in place of infinity: training them makes NaN."""
    if masked:
        named = [one.planned.tensors[0][0] for one in masked if one.planned.tensors]
        raise CompressionError(
            f"Numbers in place of infinity, as masks add, pass {len(masked)} activations, the "
            f"first '{masked[0].planned.name}', so their grids would have no steps for others. "
            f"Leave them in float: add {shortened(named, 8)} to ignored_scopes."
        )


def _called(operation: FloatOperation) -> str:
    """Return the kind of an operation, or its function if the kind is unknown."""
    if operation.kind != OTHER:
        return operation.kind
    return operation.address.rpartition("/")[2].rpartition("_")[0]
