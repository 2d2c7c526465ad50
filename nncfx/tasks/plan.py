"""Predicts what a task would do: hooks, and the savings of compression."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.compressor.evaluation.examples import one_example
from nncfx.compressor.evaluation.metrics import metric_name
from nncfx.compressor.from_config import arguments_from
from nncfx.compressor.trials.candidate import CandidateFactory, packed_bytes
from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.controllers import Controller, builder_for
from nncfx.errors import NNCFXError
from nncfx.evidence.formatting import candidate_words
from nncfx.graph.macs import total_macs
from nncfx.network import unwrap, wrap
from nncfx.schemes import as_scheme, footprint_bytes
from nncfx.search import Choice, Range
from nncfx.tasks.task import Task
from nncfx.thinning import thin
from nncfx.tracing import trace
from nncfx.training import create_compressed_model
from nncfx.training.config_scopes import configs_in_scope

_LEVELS: Final = (0.25, 0.5, 0.75, 0.9)


@final
@dataclass(frozen=True, kw_only=True)
class PlannedHook:
    """A hook that would be inserted.

    Attributes:
        site: A weight, or a port of an operation.
        algorithm: The algorithm of the hook.
        hook: Its class.
        priority: Determines the order of the hooks at a site.
    """

    site: str
    algorithm: str
    hook: str
    priority: int


@final
@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The properties of the model at a level, before any training.

    Attributes:
        at: The level or the candidate, in words.
        parameters: Elements, including zeros.
        macs: Multiply-accumulates of one example.
        footprint_bytes: Bytes of the non-zero parameters.
        file_bytes: Bytes as a `.nncfx` file.
        problem: Why there is no prediction; "" if there is one.
    """

    at: str
    parameters: int = 0
    macs: int = 0
    footprint_bytes: int = 0
    file_bytes: int = 0
    problem: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class TaskPlan:
    """What a task would do.

    Attributes:
        hooks: The hooks that 'compression' would insert, in order of execution.
        predictions: The dense model, then the compressed one at its levels.
        stages: The steps, one line each.
    """

    hooks: tuple[PlannedHook, ...]
    predictions: tuple[Prediction, ...]
    stages: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return dataclasses.asdict(self)


def plan_task(task: Task) -> TaskPlan:
    """Return what `task` would do; builds model and data, but does not train or write anything.

    Predictions are computed: the model is compressed by weights alone, thinned, and counted.

    Raises:
        NNCFXError: of the config, the model or the data, as the run would raise it at its start.
    """
    _ = task.objective, task.metric, task.criterion  # checked before the model is built
    model = task.model()
    dense = _prediction("dense", model, model, task)
    hooks: tuple[PlannedHook, ...] = ()
    predictions: Iterator[Prediction] = iter(())
    if task.config.compression:
        hooks = tuple(_hooks(task))
        predictions = iter([_trained(task)])
    elif task.config.search is not None:
        predictions = _searched(task, model)
    return TaskPlan(hooks=hooks, predictions=(dense, *predictions), stages=tuple(_stages(task)))


def _hooks(task: Task) -> Iterator[PlannedHook]:
    network = wrap(task.model(), task.example_inputs)
    config = task.config.base
    planned = [
        one
        for algorithm in configs_in_scope(config, network.nncf.graph)
        for one in builder_for(algorithm).plan(network)
    ]
    for one in sorted(planned, key=lambda one: one.priority):
        yield PlannedHook(
            site=str(one.site),
            algorithm=one.algorithm,
            hook=type(one.hook).__name__,
            priority=int(one.priority),
        )
    unwrap(network)


def _trained(task: Task) -> Prediction:
    """Return the model's properties at the end of all schedules."""
    first = list(itertools.islice(iter(task.data.train), 1))
    try:
        controller, network = create_compressed_model(
            task.model(), _without_adaptation(task), task.example_inputs, calibration_batches=first
        )
        _to_the_end(controller)
        levels = controller.level
        is_pruned = any(one.removes_channels for one in task.config.compression)
        model = (
            thin(network, task.example_inputs).model if is_pruned else controller.strip().eval()
        )
        return _prediction(f"level {levels:.4g}, the last", model, model, task)
    except NNCFXError as error:
        return Prediction(at="the last level", problem=str(error))


def _without_adaptation(task: Task) -> Any:  # noqa: ANN401 (a config)
    """Return the config without parts that read many examples and change no size."""
    data = task.config.base.to_dict()
    for one in data["compression"]:
        one.get("initializer", {}).pop("batchnorm_adaptation", None)
    return data


def _to_the_end(controller: Controller) -> None:
    for part in controller.parts.values():
        if part.has_level:
            part.level = part.scheduler.final_level


def _searched(task: Task, dense: nn.Module) -> Iterator[Prediction]:
    """Yield the model's properties at some levels, or at the ends and the middle of a space."""
    found = arguments_from(task.config.base, task.example_inputs)
    space = found.get("space")
    candidates = (
        [{"level": level} for level in _LEVELS if level < found["settings"].upper]
        if space is None
        else [_corner(space, part) for part in (0.0, 0.5, 1.0)]
    )
    for candidate in candidates:
        scheme = as_scheme(found["scheme"] if space is None else found["scheme"](candidate))
        at = f"level {candidate['level']:g}" if space is None else candidate_words(candidate)
        level = float(candidate.get("level", 0.0))
        try:
            yield _compressed(task, dense, scheme, level, at)
        except NNCFXError as error:
            yield Prediction(at=at, problem=str(error))


def _compressed(task: Task, dense: nn.Module, scheme: Any, level: float, at: str) -> Prediction:  # noqa: ANN401 (any scheme)
    if scheme.is_structured:
        scheme = scheme.bind(analyze_channels(dense, task.example_inputs))
    with CandidateTimer(dense, task.example_inputs, "torch") as timer, torch.no_grad():
        factory = CandidateFactory(
            dense=dense, scheme=scheme, timer=timer, example_inputs=task.example_inputs
        )
        model = factory.with_state(dense.state_dict())
        scheme.compress(model, level)
        found = factory.candidate(model)
    return _prediction(at, found.model, found.compressed, task)


def _corner(space: Any, part: float) -> dict[str, Any]:  # noqa: ANN401 (any space)
    chosen: dict[str, Any] = {}
    for one in space.dimensions:
        if isinstance(one, Range):
            chosen[one.name] = one.low + part * (one.high - one.low)
        elif isinstance(one, Choice):
            chosen[one.name] = one.values[round(part * (len(one.values) - 1))]
    return chosen


def _prediction(at: str, model: nn.Module, compressed: nn.Module, task: Task) -> Prediction:
    return Prediction(
        at=at,
        parameters=sum(one.numel() for one in model.parameters()),
        macs=int(total_macs(trace(model, one_example(task.example_inputs)))),
        footprint_bytes=int(footprint_bytes(compressed)),
        file_bytes=packed_bytes(model),
    )


def _stages(task: Task) -> Iterator[str]:
    config, export = task.config, task.config.export
    if config.search is not None:
        settings: Mapping[str, Any] = config.search.to_dict()
        own = task.objective
        objective = config.search.objective if own is None else own.name
        most = config.search.max_evaluations
        trials = f"{most} trials" if config.search.is_space else f"2 stages of {most} trials"
        yield (
            f"search {objective} in at most {trials}, recovery by "
            f"{settings['optimizer']['algorithm']}, budget {config.search.eps:g} of "
            f"{metric_name(task.metric)}"
        )
    if config.compression:
        names = ", ".join(one.algorithm for one in config.compression)
        yield f"train {config.train.epochs} epochs with {names}"
    if export is not None:
        runtime = f" for {export.target}" if export.target else ""
        quantized = f"quantize{runtime}, then " if export.quantize else ""
        timed = ", and time it against the dense model" if export.benchmark else ""
        yield f"{quantized}export {export.file}{runtime}{timed}"
