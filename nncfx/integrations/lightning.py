"""Compression in the `Trainer` of Lightning: schedule, loss, checkpoints and the best model."""

import contextlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.compressor.preflight import first_batch
from nncfx.config import AnyConfig, NNCFConfig
from nncfx.controllers import CompressionStage, Controller
from nncfx.errors import ArgumentError, needing
from nncfx.integrations.loop_compression import LoopCompression, Tracker, compressed_model
from nncfx.training import create_compressed_model

with needing("lightning", "lightning", "its Trainer"):
    import lightning.pytorch as pl

__all__ = ["CompressionCallback"]


@final
class CompressionCallback(pl.Callback):
    """Compresses a module of a `LightningModule` while it is fitted.

    The module is wrapped in place, before checkpoints are loaded and optimizers are created; the
    algorithms' losses are added to the result of `training_step`. Checkpoints of Lightning contain
    masks, quantizers and the schedule: `trainer.fit(..., ckpt_path=...)` continues exactly.
    `ModelCheckpoint` with a monitor compares only checkpoints of the last stage of the schedule. A
    fit of another module wraps that module, and `controller` then belongs to it.

    With manual optimization add `callback.loss()` to the loss yourself. If an algorithm trains
    parameters with their own learning rate multiplier, use
    `callback.controller.parameter_groups(lr)` in `configure_optimizers`.

    Args:
        config: With algorithms in 'compression'.
        batches: Of `(inputs, targets)` or of inputs, such as the training loader: quantizers find
            their ranges on them, and the module is traced on the first one.
        module: The dotted name in the LightningModule of the module to compress.
        example_inputs: Inputs for tracing the module, instead of the first batch.
        tracker: Receives level and loss of compression; None: the logger of the Trainer.

    Raises:
        ArgumentError: there are no inputs for tracing the module.
        ConfigError: `config` has faults.

    Attributes:
        controller: The handle of the algorithms; available once the Trainer has started.
    """

    controller: Controller

    def __init__(
        self,
        config: AnyConfig,
        batches: Iterable[Any] | None = None,
        *,
        module: str = "model",
        example_inputs: Any = None,  # noqa: ANN401 (inputs of any form)
        tracker: Tracker | None = None,
    ) -> None:
        super().__init__()
        if batches is None and example_inputs is None:
            raise ArgumentError(
                "There is nothing to trace the module on. Pass batches, such as the loader for "
                "training, or example_inputs."
            )
        self._config = NNCFConfig.of(config)
        self._batches, self._module = batches, module
        self._example_inputs = example_inputs
        self._tracker = tracker
        self._compression: LoopCompression | None = None
        self._stage: CompressionStage | None = None
        self._evaluation = contextlib.ExitStack()

    def loss(self) -> Tensor:
        """Return the loss to add to that of the task."""
        return self._begun().loss()

    def compressed(self) -> nn.Module:
        """Return a copy of the module for deployment: without dead channels and masks.

        Raises:
            ThinningError: the copy would not compute the same.
        """
        return compressed_model(self._begun().controller)

    @override
    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Wrap the module before its checkpoint is loaded; in each fit, as for k-fold."""
        if self._compression is not None and stage != "fit":
            return
        try:
            module = pl_module.get_submodule(self._module)
        except AttributeError as error:
            names = ", ".join(name for name, _ in pl_module.named_children())
            raise ArgumentError(
                f"{type(pl_module).__name__} has no module '{self._module}'; it has {names}. Name "
                "what is to be compressed: module='net'."
            ) from error
        if self._compression is not None and module is self.controller.model:
            return
        if self._example_inputs is None and self._batches is not None:
            self._example_inputs = _first_inputs(self._batches)
        module.eval()
        self.controller, _ = create_compressed_model(
            module, self._config, self._example_inputs, calibration_batches=self._batches
        )
        module.train()
        self._compression = LoopCompression(self.controller, self._tracker)
        if pl_module.automatic_optimization:
            _add_loss(pl_module, self._compression)

    @override
    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the stage of the checkpoint that training continues from."""
        self._stage = self._begun().stage if trainer.global_step else None

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set the level of the epoch."""
        self._begun().begin_epoch(trainer.current_epoch, trainer.global_step)
        pl_module.log("compression/level", float(self.controller.level))

    @override
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set the level of the step, and of an epoch that a restarted Trainer did not start."""
        self._begun().begin_epoch(trainer.current_epoch, trainer.global_step)
        self._begun().begin_step(trainer.global_step)

    @override
    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Make the module compute as `compressed()` does."""
        self._evaluation.enter_context(self.controller.evaluating())

    @override
    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Restore the state of training."""
        self._evaluation.close()

    on_test_start, on_test_end = on_validation_start, on_validation_end

    @override
    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Discard the best metric of an earlier stage, or of a lower level."""
        stage = self._begun().stage
        is_last = stage is CompressionStage.FULLY_COMPRESSED
        if trainer.sanity_checking or (stage is self._stage and is_last):
            return
        is_new, self._stage = stage is not self._stage, stage
        for one in trainer.callbacks:  # type: ignore[attr-defined]  # lightning leaves it so
            if isinstance(one, pl.callbacks.ModelCheckpoint) and is_new:
                one.best_k_models, one.best_model_score = {}, None
                one.kth_best_model_path, one.best_model_path = "", ""
            elif isinstance(one, pl.callbacks.EarlyStopping):
                worst = math.inf if one.mode == "min" else -math.inf
                one.wait_count, one.best_score = 0, torch.full_like(one.best_score, worst)

    @override
    def on_fit_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the last numbers to the tracker."""
        self._begun().end(trainer.global_step)

    def _begun(self) -> LoopCompression:
        if self._compression is None:
            raise ArgumentError(
                "The Trainer has not begun, so nothing is compressed yet. Call trainer.fit first."
            )
        return self._compression


def _add_loss(pl_module: pl.LightningModule, compression: LoopCompression) -> None:
    step = pl_module.training_step

    def training_step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the module's)
        found = step(*args, **kwargs)
        if isinstance(found, Mapping):
            return {**found, "loss": found["loss"] + compression.loss()}
        return found if found is None else found + compression.loss()

    pl_module.training_step = training_step  # type: ignore[method-assign]  # of this object


def _first_inputs(batches: Iterable[Any]) -> Any:  # noqa: ANN401 (inputs of any form)
    with torch.random.fork_rng(devices=[]):
        batch = next(iter(batches), None)
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2  # noqa: PLR2004 (and targets)
    return first_batch("batches", [batch])[0] if is_pair else batch
