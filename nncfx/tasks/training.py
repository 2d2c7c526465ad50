"""The stage that trains with the algorithms of 'compression', and its results."""

import datetime as dt
import json
import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import nn

from nncfx.compressor import machine_facts, version_facts
from nncfx.compressor.build_evidence import model_facts
from nncfx.compressor.evaluation.examples import one_example
from nncfx.compressor.evaluation.metrics import finite_metric, metric_name
from nncfx.compressor.preflight import check_training_step
from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.controllers import CompressionStage
from nncfx.errors import ArgumentError, MissingExtraError
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.layer_table import layer_rows
from nncfx.runtimes import Timing
from nncfx.storage.formats.whole_file import SavedFile, read_object, write_text
from nncfx.tasks.task import Task
from nncfx.thinning import ThinRecipe, save_thinned, thin
from nncfx.training import Recipe, Training, TrainingProgress, create_compressed_model

Say = Callable[[str], None]
"""Receives a line that reports progress."""

PROGRESS: Final = "training.json"
_CHECKPOINT: Final = "training.ckpt"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """A model before and after training.

    Attributes:
        dense: The original model.
        model: Compressed, stripped, and without dead channels.
        metrics: Of both, on the data for testing, or else for validation.
        max_error: Of thinning; None if no channel was pruned.
        recipes: How the model was thinned.
    """

    dense: nn.Module
    model: nn.Module
    metrics: tuple[float, float]
    max_error: float | None = None
    recipes: tuple[ThinRecipe, ...] = ()


def train_task(task: Task, folder: Path, say: Say) -> Trained:
    """Train according to 'train' and 'compression'; a killed run continues in its `folder`.

    Raises:
        NNCFXError: as `nncfx.create_compressed_model`, `nncfx.training.Training` and `nncfx.thin`.
    """
    train, data = task.config.train, task.data
    torch.manual_seed(train.seed)
    dense = task.model()
    judges = data.test or data.validation
    if train.epochs:
        check_training_step(dense, data.train, task.criterion)
    before = finite_metric(task.metric, dense, judges, "dense")
    say(f"dense: {metric_name(task.metric)} {before:.4f}")
    torch.manual_seed(train.seed)
    controller, network = create_compressed_model(
        task.model(), task.config.base, task.example_inputs, calibration_batches=data.train
    )
    if train.epochs:
        batches = _NumberedBatches(data.train, train.seed)
        recipe = Recipe(
            steps=train.epochs * len(batches),
            steps_per_epoch=len(batches),
            lr=train.lr,
            warmup=train.warmup,
            momentum=train.momentum,
            weight_decay=train.weight_decay,
            task_weight=train.task_weight,
            precision=train.precision,
        )
        checkpoint = folder / _CHECKPOINT
        training = Training(controller, batches, task.criterion, recipe, checkpoint)
        if training.step:
            say(f"continuing after step {training.step} of {recipe.steps}")
        training.run(on_progress=_Progress(folder / PROGRESS, say, training.step))
    network.eval()
    if controller.compression_stage() is not CompressionStage.FULLY_COMPRESSED:
        say(
            f"the schedule has not come to its end: the level is {controller.level:.3g}, its last "
            f"{controller.scheduler.final_level:.3g}. Give 'train' more epochs, the schedule "
            "fewer, or masks that are learned a higher 'compression_lr_multiplier'"
        )
    if any(one.removes_channels for one in task.config.compression):
        thinned = thin(network, task.example_inputs)
        model, error = thinned.model, thinned.max_error
        recipes: tuple[ThinRecipe, ...] = (thinned.recipe,)
    else:
        model, error, recipes = controller.strip().eval(), None, ()
    after = finite_metric(task.metric, model, judges, "compressed")
    say(f"compressed: {metric_name(task.metric)} {after:.4f}")
    return Trained(
        dense=dense, model=model, metrics=(before, after), max_error=error, recipes=recipes
    )


def evidence_of(task: Task, trained: Trained, file: SavedFile) -> Evidence:
    """Measure both models and return the evidence for a report."""
    timings = _timings(task, trained)
    one = one_example(task.example_inputs)
    return Evidence(
        title=task.path.stem,
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        metric=metric_name(task.metric),
        runtime=timings[2],
        machine=machine_facts(),
        versions=version_facts(),
        dense=model_facts(
            trained.dense, task.example_inputs, accuracy=trained.metrics[0], timing=timings[0]
        ),
        compressed=model_facts(
            trained.model,
            task.example_inputs,
            accuracy=trained.metrics[1],
            timing=timings[1],
            file_bytes=file.size_bytes,
        ),
        studies=(),
        layers=layer_rows(trained.dense, trained.model, one),
        max_thinning_error=trained.max_error,
        files={"compressed model": str(file.path)},
        notes=(),
        command=f"nncfx compress {shlex.quote(task.path.name)}",
        batch=None if timings[0] is None else timings[0].examples,
        threads=None if timings[0] is None else timings[0].threads,
    )


def _timings(task: Task, trained: Trained) -> tuple[Timing | None, Timing | None, str]:
    """Return the timings of both models in ONNX Runtime, or in torch if that is not installed."""
    for runtime in ("onnxruntime", "torch"):
        try:
            with CandidateTimer(trained.dense, task.example_inputs, runtime) as timer:
                timer.open()
                return *timer.compare(trained.model), runtime
        except MissingExtraError:
            continue
    return None, None, "none"


def save_compressed(path: Path, trained: Trained) -> SavedFile:
    """Write the compressed model as `.nncfx`, which `nncfx.load` reads."""
    return save_thinned(path, trained.model, trained.recipes)


@final
class _NumberedBatches:
    """The batches of a loader by the number of the step; each epoch has its own seed.

    Args:
        loader: Has a length, and yields `(inputs, targets)`.
        seed: Of the first epoch.
    """

    def __init__(self, loader: Iterable[Any], seed: int) -> None:
        try:
            self._length = len(loader)  # type: ignore[arg-type]  # what has none is refused
        except TypeError as error:
            raise ArgumentError(
                "The loader for training has no length, so a training that was killed could not "
                "continue at the same batch. Return a DataLoader or a list of batches."
            ) from error
        self._loader, self._seed = loader, seed
        self._next = -1
        self._batches: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return self._length

    def __call__(self, step: int) -> Any:  # noqa: ANN401 (as the loader gives them)
        epoch, position = divmod(step, self._length)
        if step != self._next or position == 0:
            self._batches = self._of_epoch(epoch)
            for _ in range(position):
                next(self._batches)
        self._next = step + 1
        batch = next(self._batches)
        if not isinstance(batch, tuple | list) or len(batch) != 2:  # noqa: PLR2004 (a pair)
            raise ArgumentError(
                f"A batch for training is a {type(batch).__name__}; it must be a pair of inputs "
                "and targets. Wrap the loader so that it gives (inputs, targets)."
            )
        return batch

    def _of_epoch(self, epoch: int) -> Iterator[Any]:
        state = torch.get_rng_state()
        try:
            torch.manual_seed(self._seed + epoch)
            batches = iter(self._loader)
            first = next(batches, None)  # if a sampler draws the order
        finally:
            torch.set_rng_state(state)
        if first is None:
            raise ArgumentError("The loader for training gives no batch. Give at least one.")
        yield first
        yield from batches


def history(folder: Path) -> list[dict[str, Any]]:
    """Return step, loss and level at the end of each epoch of the training in `folder`."""
    if not (folder / PROGRESS).is_file():
        return []
    facts: dict[str, Any] = read_object(folder / PROGRESS, "progress of a training")
    found: list[dict[str, Any]] = facts.get("epochs", [])
    return found


@final
class _Progress:
    """Reports each epoch, and records it for `nncfx status`."""

    def __init__(self, path: Path, say: Say, step: int) -> None:
        self._path, self._say = path, say
        self._began, self._first = time.monotonic(), step
        self._epochs = [one for one in history(path.parent) if one["step"] <= step]

    def __call__(self, at: TrainingProgress) -> None:
        seconds = time.monotonic() - self._began
        left = seconds / max(at.step - self._first, 1) * (at.steps - at.step)
        facts: dict[str, Any] = {
            "step": at.step,
            "steps": at.steps,
            "loss": at.loss,
            "level": at.level,
            "seconds_left": left,
        }
        self._epochs.append({name: facts[name] for name in ("step", "loss", "level")})
        facts["epochs"] = self._epochs
        write_text(self._path, json.dumps(facts) + "\n")
        self._say(
            f"step {at.step} of {at.steps}: loss {at.loss:.4f}, level {at.level:.3f}, "
            f"{left:.0f} s left"
        )
