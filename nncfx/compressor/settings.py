"""The settings of a compressor: model, data, budget, and where and how to search."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import Metric, accuracy
from nncfx.compressor.preflight import (
    check_budget,
    check_executor,
    check_instances,
    check_loaders,
    check_model,
    check_space,
)
from nncfx.compressor.result import CompressionResult
from nncfx.errors import ArgumentError, require_truths
from nncfx.lc import Recovery
from nncfx.objectives import Objective
from nncfx.schemes import SchemeLike
from nncfx.search import Candidate as Point
from nncfx.search import Executor, LocalExecutor, SearchSettings, Space, SpaceSettings
from nncfx.tracing import ExampleInputs


@dataclass(frozen=True, kw_only=True, eq=False)
class CompressorSettings:
    """The settings of a `Compressor`.

    Attributes:
        objective: What to improve: `Maximize(throughput)`, `Minimize(footprint)`, or any other.
        scheme: How to compress, such as `Compose([FilterPrune(), Quantize("float16")])`.
        optimizer: How to recover accuracy: `LC(...)`, `DC()`, `DCFineTuned(...)`.
        trainloader: Batches `(inputs, targets)` to recover on; must be iterable repeatedly.
        valloader: Batches on which levels are judged; like all loaders, must be iterable
            repeatedly.
        criterion: The training loss of `(outputs, targets)`.
        model: The trained model; it is copied, never changed. Omit it if `after` is given.
        after: A result to continue from: its model is compressed further, its evidence is kept,
            and the budget still counts from its original dense model.
        testloader: Batches that only judge the winner and choose nothing; by default a part of
            `valloader`, as `held_out` says.
        held_out: The share of the batches of `valloader` that only judge the winner, in [0, 1), if
            there is no `testloader`: 0.5 takes every second batch (`divided` of
            `nncfx.compressor.evaluation.validation_data`). If the winner's loss on them exceeds
            the budget, the best of the safer trials replaces it. 0: nothing is held out.
        metric: The metric of the budget; higher is better. The default is accuracy, computed from
            one score per class.
        eps: The budget: how far the metric may fall below the dense model's, at least 0.
        warm_start: Whether recovery starts from the weights of the nearest finished trial of a
            lower level, instead of the dense model's: the same training gets further, but trials
            depend on earlier ones.
        stop_hopeless: Whether a trial without prospect of keeping the budget ends early
            (`nncfx.search.should_stop_early`).
        margin: How much of the budget to keep in reserve, in [0, eps]: levels are judged on
            validation data, and the best of several trials is partly the luckiest. None:
            `nncfx.search.CAUTION` standard errors of a trial's loss, measured against the dense
            model on the same data; then nine of ten searches keep the budget on other data.
        example_inputs: Inputs for tracing, thinning and timing; the first validation batch by
            default.
        folder: Where the journal and the trials' weights are kept, so that a killed run can
            continue; the evidence is written there at the end. None: in memory only.
        runtime: The runtime for timing: `"onnxruntime"`, `"openvino"`, `"torch"`.
        threads: CPU threads of a timed call; None leaves the choice to the runtime. With 1, CPU
            time is measured on a machine that is busy with other work, as it stays steady.
        space: What to search instead of one level. `scheme` is then a function from a candidate of
            the space to its scheme, applied at the candidate's "level", if it has one;
            `nncfx.schemes.AtLevel` gives each part of a scheme its own level.
        settings: How finely and how long to search: `SearchSettings`, or `SpaceSettings` for a
            space.
        workers: How many trials run at the same time, as processes of this machine. Each process
            receives the model, the data and the functions once, by pickling; times are measured in
            this process, while the others wait.
        executor: What runs trials instead: `nncfx.search.LocalExecutor`, or
            `nncfx.search.RayExecutor` with the resources of a trial, on a cluster whose machines
            share `folder`.
        name: The name of this study in the report; the objective's name by default.
        title: The title of the report; the class of the model by default, or the title of
            the result that this continues.

    Raises:
        ArgumentError: neither or both of `model` and `after` are given; `eps`, `margin` or
            `held_out` is out of range; an argument has the wrong kind, such as a class for an
            object or a generator for a loader.
    """

    objective: Objective
    scheme: SchemeLike | Callable[[Point], SchemeLike]
    optimizer: Recovery
    trainloader: Iterable[Any]
    valloader: Iterable[Any]
    criterion: Callable[[Any, Any], torch.Tensor]
    model: nn.Module | None = None
    after: CompressionResult | None = None
    testloader: Iterable[Any] | None = None
    metric: Metric = accuracy
    eps: float = 0.02
    held_out: float = 0.5
    margin: float | None = None
    warm_start: bool = False
    stop_hopeless: bool = False
    example_inputs: ExampleInputs | None = None
    folder: str | Path | None = None
    runtime: str = "onnxruntime"
    threads: int | None = None
    space: Space | None = None
    settings: SearchSettings | SpaceSettings | None = None
    workers: int = 1
    executor: Executor | None = None
    name: str | None = None
    title: str | None = None

    def __post_init__(self) -> None:
        require_truths(self)
        if (self.model is None) == (self.after is None):
            raise ArgumentError(
                "A compressor needs either 'model', a trained model, or 'after', the result of "
                "another compressor to go on from; it got "
                + ("neither." if self.model is None else "both.")
            )
        if self.model is not None:
            check_model(self.model)
        check_instances(vars(self))
        check_executor(self.workers, self.executor)
        check_space(self.space, self.settings, stop_hopeless=self.stop_hopeless)
        check_budget(self.eps, self.margin, self.metric, self.held_out)
        check_loaders(
            {name: vars(self)[name] for name in ("trainloader", "valloader", "testloader")}
        )

    def workers_of(self) -> Executor | None:
        """Return what runs trials in parallel; None: they run here, one after the other."""
        if self.executor is None and self.workers > 1:
            return LocalExecutor(self.workers)
        return self.executor

    @property
    def level_settings(self) -> SearchSettings:
        """The settings of a search of one level."""
        return self.settings if isinstance(self.settings, SearchSettings) else SearchSettings()

    @property
    def space_settings(self) -> SpaceSettings:
        """The settings of a search of a space."""
        return self.settings if isinstance(self.settings, SpaceSettings) else SpaceSettings()
