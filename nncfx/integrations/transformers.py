"""Compression in the `Trainer` of transformers: schedule, loss, resuming and the best model."""

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

import torch
from safetensors import safe_open
from torch import nn
from typing_extensions import override

from nncfx.config import AnyConfig
from nncfx.controllers import CompressionStage, Controller
from nncfx.errors import ArgumentError, error_text, machine_fault, needing
from nncfx.integrations.loop_compression import LoopCompression, Tracker, compressed_model
from nncfx.quantization.ranges.calibration import first_examples
from nncfx.storage.formats.whole_file import writing
from nncfx.tracing import run
from nncfx.tracing.calls.devices import on_device
from nncfx.tracing.hooks.store import STORE
from nncfx.training import create_compressed_model

with needing("transformers", "transformers", "its Trainer"):
    from transformers import Trainer, TrainerCallback

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

__all__ = ["TrainerCompression"]

_Batch: TypeAlias = dict[str, Any]

_KEPT: Final = "compression.pt"
"""The file in a checkpoint for tensors that the Trainer's own files lack or rename."""

_SAMPLED: Final = 300
"""Number of examples on which quantizers find their ranges."""


@final
class TrainerCompression(TrainerCallback):
    """Compresses the model of a `Trainer` during training; create it before `trainer.train()`.

    The model is wrapped in place, calibrated on the training data if the config asks for it, and
    trained with the algorithms' schedules and losses. Parameters of algorithms get their own
    learning rate, and no weight decay. Checkpoints of the Trainer contain masks, quantizers and
    the schedule, so a Trainer that continues from one (`last_checkpoint`) continues exactly.
    `load_best_model_at_end` only compares checkpoints of the last stage of the schedule: otherwise
    a model that is hardly compressed yet would always be the best. Before that stage, callbacks
    such as `EarlyStoppingCallback` cannot stop the training, since metrics fall while the level
    rises.

    Args:
        trainer: Created as usual; it has not trained yet.
        config: With algorithms in 'compression'.
        example_inputs: Inputs for tracing the model; by default the inputs of the first training
            batch, with labels only if the model does not run without them, like encoder-decoder
            models that derive the decoder's inputs from them.
        tracker: Receives level and loss of compression.

    Attributes:
        controller: The handle of the algorithms.

    Raises:
        ArgumentError: the Trainer already has an optimizer, or has no model, or there are no
            example inputs and its model does not run on its batches.
        NNCFXError: as `nncfx.create_compressed_model`.
    """

    def __init__(
        self,
        trainer: Trainer,
        config: AnyConfig,
        *,
        example_inputs: Any = None,  # noqa: ANN401 (inputs of any form)
        tracker: Tracker | None = None,
    ) -> None:
        if trainer.optimizer is not None:
            raise ArgumentError(
                "The Trainer has its optimizer already, which would not train what the algorithms "
                "learn. Make TrainerCompression right after the Trainer, before train(), and "
                "leave 'optimizers' to the Trainer."
            )
        model = trainer.model
        if model is None or getattr(trainer, "model_init", None) is not None:
            raise ArgumentError(
                "The Trainer makes a new model by its model_init whenever it trains, which would "
                "not be compressed. Give it the model itself: Trainer(model=...)."
            )
        model.eval()
        with torch.random.fork_rng():
            batches = list(first_examples(_batches(trainer), _SAMPLED))
            labels = frozenset(trainer.label_names or ("labels",))
            batches = _as_taken(model, batches, labels, is_traced=example_inputs is None)
        self.controller: Controller
        self.controller, _ = create_compressed_model(
            model,
            config,
            batches[0] if example_inputs is None else example_inputs,
            calibration_batches=batches,
        )
        self._output_dir = str(trainer.args.output_dir)
        self._compression = LoopCompression(self.controller, tracker)
        self._stage: CompressionStage | None = None
        for name, around in (
            ("compute_loss", self._with_loss),
            ("create_optimizer", self._with_groups),
            ("evaluation_loop", self._as_compressed),
        ):
            setattr(trainer, name, around(trainer, getattr(trainer, name)))
        self._keep_state(trainer, model)
        trainer.add_callback(self)
        callbacks = trainer.callback_handler.callbacks
        callbacks.insert(0, callbacks.pop())  # before early stopping by the best metric

    def compressed(self) -> nn.Module:
        """Return a copy of the model for deployment: without dead channels and masks.

        Raises:
            ThinningError: the copy would not compute the same.
        """
        return compressed_model(self.controller)

    def last_checkpoint(self) -> str | None:
        """Return the newest complete checkpoint of the Trainer; None if there is none.

        For `trainer.train(resume_from_checkpoint=compression.last_checkpoint())`. A Trainer that
        was killed while saving leaves an incomplete checkpoint, which
        `resume_from_checkpoint=True` would select and then reject.
        """
        found = [
            (int(folder.name.removeprefix("checkpoint-")), str(folder))
            for folder in Path(self._output_dir).glob("checkpoint-*")
            if folder.name.removeprefix("checkpoint-").isdigit() and _is_whole(folder)
        ]
        return max(found)[1] if found else None

    @override
    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: Any
    ) -> None:
        """Restore the stage of the checkpoint that training continues from."""
        self._stage = self._compression.stage if state.global_step else None

    @override
    def on_epoch_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: Any
    ) -> None:
        """Set the level of the epoch."""
        epoch = int((state.epoch or 0.0) + 1e-6)
        self._compression.begin_epoch(epoch, state.global_step)

    @override
    def on_step_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: Any
    ) -> None:
        """Set the level of the step."""
        self._compression.begin_step(state.global_step)

    @override
    def on_evaluate(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: Any
    ) -> None:
        """Discard the best metric of an earlier stage, or level."""
        stage = self._compression.stage
        if stage is not self._stage or stage is not CompressionStage.FULLY_COMPRESSED:
            self._stage = stage
            state.best_metric = None

    @override
    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **_: Any
    ) -> None:
        """Report the last numbers to the tracker."""
        self._compression.end(state.global_step)

    def _keep_state(self, trainer: Trainer, model: nn.Module) -> None:
        """Save what the Trainer's files lack next to each checkpoint, and load it again.

        For an adapted model PEFT only saves the adapter. transformers saves some others under
        names that its Trainer does not read back, such as ViT from version 5 on.
        """
        save, load = trainer._save, trainer._load_from_checkpoint  # noqa: SLF001 (no callback has both)
        load_best = trainer._load_best_model  # noqa: SLF001 (as above)

        def saved(output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
            save(output_dir, state_dict)
            folder = Path(output_dir or self._output_dir)
            own = _lacking(model, folder)
            if own:
                with writing(folder / _KEPT) as draft:
                    torch.save({name: one.detach() for name, one in own.items()}, draft)

        def read(folder: str) -> None:
            path = Path(folder) / _KEPT
            if path.exists():
                model.load_state_dict(torch.load(path, weights_only=True), strict=False)
            elif lacking := _lacking(model, Path(folder)):
                raise ArgumentError(
                    f"'{folder}' has no {_KEPT}, and its other files lack {len(lacking)} tensors "
                    f"of the model, such as '{next(iter(lacking))}': masks, quantizers and "
                    "schedules, or weights under other names. Continue from a checkpoint of a "
                    "training with TrainerCompression, or start over."
                )

        def loaded(resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
            load(resume_from_checkpoint, model)
            read(resume_from_checkpoint)

        def loaded_best() -> None:
            load_best()
            read(str(trainer.state.best_model_checkpoint))

        vars(trainer).update(
            _save=saved, _load_from_checkpoint=loaded, _load_best_model=loaded_best
        )

    def _with_loss(self, trainer: Trainer, compute: Callable[..., Any]) -> Callable[..., Any]:
        def compute_loss(
            model: nn.Module,
            inputs: dict[str, Any],
            return_outputs: bool = False,
            num_items_in_batch: Any = None,  # noqa: ANN401 (a tensor or a number)
        ) -> Any:  # noqa: ANN401 (as the Trainer's)
            found = compute(model, inputs, return_outputs, num_items_in_batch)
            if not model.training:
                return found
            extra = self._compression.loss()
            if _is_scaled(trainer, num_items_in_batch):
                extra = extra / trainer.current_gradient_accumulation_steps
            return (found[0] + extra, found[1]) if return_outputs else found + extra

        return compute_loss

    def _as_compressed(self, trainer: Trainer, loop: Callable[..., Any]) -> Callable[..., Any]:
        del trainer

        @functools.wraps(loop)
        def evaluation_loop(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the Trainer's)
            with self.controller.evaluating():
                return loop(*args, **kwargs)

        return evaluation_loop

    def _with_groups(self, trainer: Trainer, create: Callable[..., Any]) -> Callable[..., Any]:
        def create_optimizer(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as the Trainer's)
            if trainer.optimizer is not None:
                return create(*args, **kwargs)
            optimizer = create(*args, **kwargs)
            own, *groups = self.controller.parameter_groups(lr=trainer.args.learning_rate)
            del own  # the model's own parameters keep the groups of the Trainer
            learned = {id(one) for group in groups for one in group["params"]}
            for group in optimizer.param_groups:
                group["params"] = [one for one in group["params"] if id(one) not in learned]
            for group in groups:
                optimizer.add_param_group(group)
            return optimizer

        return create_optimizer


def _lacking(model: nn.Module, folder: Path) -> dict[str, Any]:
    """Return the tensors of `model` that the weight files in `folder` lack under their names.

    For an adapted model these are the state of hooks and the trained weights, of which PEFT saves
    the masked values.
    """
    state: dict[str, Any] = model.state_dict(keep_vars=True)
    if hasattr(model, "peft_config"):
        kept = {name for name, one in model.named_parameters() if one.requires_grad}
        return {
            name: one
            for name, one in state.items()
            if name in kept or name.startswith(f"{STORE}.")
        }
    files = list(folder.glob("*.safetensors"))
    if not files:
        return {}  # another format, with torch's own names
    stored: set[str] = set()
    for file in files:
        with safe_open(file, framework="pt") as opened:
            stored.update(opened.keys())
    # shared tensors are stored under one name
    found = {id(one) for name, one in state.items() if name in stored}
    return {
        name: one for name, one in state.items() if name not in stored and id(one) not in found
    }


def _is_whole(checkpoint: Path) -> bool:
    """Return whether the file that a Trainer writes last exists and is complete."""
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _is_scaled(trainer: Trainer, num_items_in_batch: object) -> bool:
    """Return whether the loss is already scaled for gradient accumulation."""
    told: bool | None = getattr(trainer, "loss_is_scaled_for_ga", None)
    if told is not None:
        return told
    by_model = trainer.model_accepts_loss_kwargs and num_items_in_batch is not None
    return bool(by_model or trainer.compute_loss_func is not None)


def _batches(trainer: Trainer) -> Iterator[_Batch]:
    for batch in trainer.get_train_dataloader():
        yield on_device(trainer.args.device, dict(batch))


def _as_taken(
    model: nn.Module, batches: list[_Batch], labels: frozenset[str], *, is_traced: bool
) -> list[_Batch]:
    """Return `batches` without labels, or with them if the model does not run without.

    Raises:
        ArgumentError: the first batch is to be traced, and runs neither way.
    """
    bare = [{name: one[name] for name in one if name not in labels} for one in batches]
    if _fault(model, bare[0]) is None:
        return bare
    fault = _fault(model, batches[0])
    if fault is None:
        return batches
    if is_traced:
        raise ArgumentError(
            f"{type(model).__name__} runs on the first training batch neither without its labels "
            f"nor with them: {error_text(fault)}. The batch holds {', '.join(batches[0])}. Pass "
            "example_inputs=, a mapping of what its forward takes."
        ) from fault
    return bare


def _fault(model: nn.Module, batch: _Batch) -> Exception | None:
    """Return the error of the model on a batch, None if it runs."""
    try:
        with torch.no_grad():
            run(model, batch)
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        return error
    return None
