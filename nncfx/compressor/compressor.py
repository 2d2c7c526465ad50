"""The compressor: from a trained model to a compressed one inside an accuracy budget."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import nn

from nncfx.compressor.bench import Bench
from nncfx.compressor.candidate import Candidate, Forge
from nncfx.compressor.evidence import Evidence
from nncfx.compressor.examples import first_inputs
from nncfx.compressor.metrics import Metric, accuracy
from nncfx.compressor.progress import Narrator, narrated
from nncfx.compressor.proof import Exhibits, StudyWords, evidence, fingerprint, study
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.spelling import spelt
from nncfx.compressor.states import TrialStates
from nncfx.errors import ArgumentError
from nncfx.lc import Recovery, RecoveryData
from nncfx.objectives import Objective
from nncfx.schemes import SchemeLike, as_scheme
from nncfx.search import (
    JSONValue,
    Measurement,
    SearchResult,
    SearchSettings,
    Study,
    search_level,
)
from nncfx.tracing import ExampleInputs, analyze_channels

__all__ = ["Compressor"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Compressor:
    """Finds the level that serves an objective best inside an accuracy budget, and compresses.

    Each trial compresses a copy of the model to a level with `scheme`, lets `optimizer` recover
    its accuracy, removes the channels that died, and measures the objective. The search first
    finds the highest level that keeps the budget, then the best objective below it.

    Attributes:
        objective: What to improve: `Maximize(throughput)`, `Minimize(footprint)`, or any.
        scheme: How to compress, such as `Compose([FilterPrune(), Quantize("float16")])`.
        optimizer: How to recover accuracy: `LC(...)`, `DC()`, `DCFineTuned(...)`.
        trainloader: Batches `(inputs, targets)` to recover on; iterable again and again.
        valloader: Batches on which levels are judged.
        criterion: The training loss of `(outputs, targets)`.
        model: The trained model; it is copied, never changed. Left out when `after` is given.
        after: A result to go on from: its model is compressed further, its evidence kept, and
            the budget still counts from the dense model that it began with.
        testloader: Held-out batches for the accuracies in the evidence; `valloader` by default.
        metric: What the budget is counted in; higher is better. Accuracy by default.
        eps: The budget: how far the metric may fall below the dense model's, at least 0.
        margin: How much of the budget to keep in reserve, in [0, eps]: levels are judged on
            validation data, and the best of several trials is in part the luckiest one.
        example_inputs: What is traced, thinned and timed; the first validation batch by default.
        folder: Where the journal and the trials' weights are kept, so that a run that was
            killed goes on where it stopped. None: in memory only.
        runtime: Where time is measured: `"onnxruntime"`, `"openvino"`, `"torch"`.
        settings: How closely and how long to search.
        name: How the report calls this study; the objective's name by default.

    Raises:
        ArgumentError: neither or both of `model` and `after`; `eps` or `margin` out of range.

    Source: Condensa (Joseph et al., 2019), Listing 1 and Algorithm 1.
    """

    objective: Objective
    scheme: SchemeLike
    optimizer: Recovery
    trainloader: Iterable[Any]
    valloader: Iterable[Any]
    criterion: Callable[[Any, Any], torch.Tensor]
    model: nn.Module | None = None
    after: CompressionResult | None = None
    testloader: Iterable[Any] | None = None
    metric: Metric = accuracy
    eps: float = 0.02
    margin: float = 0.0
    example_inputs: ExampleInputs | None = None
    folder: str | Path | None = None
    runtime: str = "onnxruntime"
    settings: SearchSettings = field(default_factory=SearchSettings)
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.after is None):
            raise ArgumentError(
                "A compressor needs either 'model', a trained model, or 'after', the result of "
                "another compressor to go on from; it got "
                + ("neither." if self.model is None else "both."),
            )
        if not self.eps >= 0:
            raise ArgumentError(
                f"eps is {self.eps!r}; it is how far the metric may fall and is at least 0. "
                "Write 0.02 for two points of accuracy.",
            )
        if not 0 <= self.margin <= self.eps:
            raise ArgumentError(
                f"margin is {self.margin!r}; it is the part of the budget that is kept in reserve "
                f"and lies in [0, eps], with eps = {self.eps!r}.",
            )

    def run(self) -> CompressionResult:
        """Search, compress, thin, time, and return the result with its evidence.

        Raises:
            SearchError: there is nothing to search, or the journal in `folder` is another run's.
            MissingExtraError: the extra of the search or of the runtime is not installed.
            TracingError: the model does not run on the example inputs.
        """
        return _Run(self).result()


@final
class _Run:
    """The state of a run: the models, the stopwatch, the journal, the weights of the trials.

    Args:
        settings: the compressor whose run this is.
    """

    def __init__(self, settings: Compressor) -> None:
        self._settings = settings
        self._previous = settings.after
        given = settings.model if self._previous is None else self._previous.model
        if given is None:  # the compressor has refused this
            raise AssertionError
        self._model = copy.deepcopy(given).eval()
        self._dense = self._model if self._previous is None else self._previous.dense
        self._reference = (
            settings.metric(self._model, settings.valloader)
            if self._previous is None
            else self._previous.reference
        )
        self._inputs: ExampleInputs = (
            first_inputs(settings.valloader)
            if settings.example_inputs is None
            else settings.example_inputs
        )
        self._data = RecoveryData(
            train=settings.trainloader,
            validate=lambda model: settings.metric(model, settings.valloader),
            criterion=settings.criterion,
        )
        self._heldout = settings.testloader or settings.valloader
        self._states = TrialStates(self._path("weights"))

    @property
    def name(self) -> str:
        """How the report calls this study."""
        return self._settings.name or self._settings.objective.name

    def result(self) -> CompressionResult:
        """Search, compress to the chosen level, prove, and return the result."""
        settings = self._settings
        scheme = as_scheme(settings.scheme)
        if scheme.is_structured:
            scheme = scheme.bind(analyze_channels(self._model, self._inputs))
        with (
            Study(self._path("journal.jsonl"), self._header()) as journal,
            Bench(self._dense, self._inputs, settings.runtime) as bench,
            narrated(self.name) as narrator,
        ):
            forge = Forge(
                dense=self._model, scheme=scheme, bench=bench, example_inputs=self._inputs
            )
            search = search_level(
                lambda level: self._measure(forge, level, narrator),
                threshold=self._reference - settings.eps + settings.margin,
                maximize=settings.objective.maximize,
                at_zero=self._measure_dense(forge, journal),
                study=journal,
                settings=settings.settings,
            )
            narrator.now("measuring the chosen model")
            chosen = self._chosen(forge, search)
            return CompressionResult(
                model=chosen.model,
                dense=self._dense,
                search=search,
                evidence=self._evidence(search, chosen, bench),
                metric=settings.metric,
                testloader=self._heldout,
                reference=self._reference,
            )

    def _path(self, name: str) -> Path | None:
        folder = self._settings.folder
        return None if folder is None else Path(folder) / name

    def _header(self) -> dict[str, JSONValue]:
        """What must be the same for a journal to go on; else its trials mean something else."""
        settings = self._settings
        return {
            "objective": settings.objective.name,
            "scheme": spelt(settings.scheme),
            "optimizer": spelt(settings.optimizer),
            "eps": settings.eps,
            "margin": settings.margin,
            "runtime": settings.runtime,
            "model": fingerprint(self._model),
        }

    def _measure_dense(self, forge: Forge, journal: Study) -> Measurement:
        if journal.trials and journal.trials[0].measurement is not None:
            return journal.trials[0].measurement
        return Measurement(
            metric=self._data.validate(self._model),
            objective=self._settings.objective.evaluate(forge.uncompressed()),
        )

    def _measure(self, forge: Forge, level: float, narrator: Narrator) -> Measurement:
        narrator.now(f"level {level:.4g}: recovering accuracy")
        recovered = self._settings.optimizer.recover(self._model, forge.scheme, level, self._data)
        self._states.save(level, recovered.compressed.state_dict())
        narrator.now(f"level {level:.4g}: measuring {self._settings.objective.name}")
        candidate = forge.candidate(recovered.compressed)
        measurement = Measurement(
            metric=recovered.metric,
            objective=self._settings.objective.evaluate(candidate),
            details={
                # step 0 of every recovery is direct compression, before any training
                "direct_metric": recovered.history[0].metric,
                "parameters": candidate.parameters(),
                "macs": candidate.macs(),
                "footprint_bytes": candidate.footprint_bytes(),
            },
        )
        narrator.found(
            f"level {level:.4g}: metric {measurement.metric:.4f}, "
            f"{self._settings.objective.name} {measurement.objective:,.5g} "
            f"{self._settings.objective.unit}",
        )
        return measurement

    def _chosen(self, forge: Forge, search: SearchResult) -> Candidate:
        if search.level == 0.0:
            return forge.uncompressed()
        return forge.candidate(forge.with_state(self._states.load(search.level)))

    def _evidence(self, search: SearchResult, chosen: Candidate, bench: Bench) -> Evidence:
        settings = self._settings
        words = StudyWords(
            name=self.name,
            scheme=spelt(settings.scheme),
            recovery=spelt(settings.optimizer),
            budget=settings.eps,
        )
        return evidence(
            Exhibits(
                dense=self._dense,
                chosen=chosen,
                bench=bench,
                metric=settings.metric,
                heldout=self._heldout,
                example_inputs=self._inputs,
            ),
            study(words, search, settings.objective),
            notes=self._notes(search),
            earlier=None if self._previous is None else self._previous.evidence,
        )

    def _notes(self, search: SearchResult) -> tuple[str, ...]:
        if search.level > 0.0:
            return ()
        note = (
            f"{self.name}: no level kept the metric at {search.threshold:.4f} and improved "
            f"{self._settings.objective.name}, so this study left the model as it was."
        )
        return (note,)
