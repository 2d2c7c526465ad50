"""The compressor: from a trained model to a compressed one inside an accuracy budget."""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import nn

from nncfx.compressor.bench import Bench
from nncfx.compressor.candidate import Candidate, Forge
from nncfx.compressor.evidence import Evidence
from nncfx.compressor.from_config import arguments_from
from nncfx.compressor.metrics import Metric, accuracy, metric_name, metric_value
from nncfx.compressor.preflight import (
    check_budget,
    check_extras,
    check_instances,
    check_loaders,
    check_model,
    check_training_step,
    first_batch,
    reach_note,
    small_sample_note,
)
from nncfx.compressor.progress import Narrator, narrated
from nncfx.compressor.proof import Exhibits, StudyWords, evidence, fingerprint, study
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.spelling import number, spelt
from nncfx.compressor.states import TrialStates
from nncfx.config import NNCFConfig
from nncfx.errors import ArgumentError
from nncfx.lc import DC, Recovery, RecoveryData
from nncfx.objectives import Objective
from nncfx.schemes import Scheme, SchemeLike, as_scheme
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
        valloader: Batches on which levels are judged; iterable again and again, as all loaders.
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
        title: How the report calls the whole; the class of the model by default, or the title of
            the result that this goes on `after`.

    Raises:
        ArgumentError: neither or both of `model` and `after`; `eps` or `margin` out of range; a
            part of the wrong kind, such as a class for an object or a generator for a loader.

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
    title: str | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.after is None):
            raise ArgumentError(
                "A compressor needs either 'model', a trained model, or 'after', the result of "
                "another compressor to go on from; it got "
                + ("neither." if self.model is None else "both."),
            )
        if self.model is not None:
            check_model(self.model)
        check_instances(vars(self))
        check_budget(self.eps, self.margin, self.metric)
        check_loaders(
            {name: vars(self)[name] for name in ("trainloader", "valloader", "testloader")},
        )

    @classmethod
    def from_config(cls, config: NNCFConfig | Mapping[str, Any], **parts: Any) -> Self:  # noqa: ANN401 (as __init__)
        """Return the compressor that the section `search` of a config describes.

        Args:
            config: With a section `search`.
            parts: What no file can hold: `model`, `trainloader`, `valloader`, `criterion` and the
                like; they override what the section says.

        Raises:
            ConfigError: `config` has faults or no such section.
            ArgumentError: as for the compressor itself.
        """
        return cls(**(arguments_from(config, parts.get("example_inputs")) | parts))

    def run(self) -> CompressionResult:
        """Search, compress, thin, time, and return the result with its evidence.

        Raises:
            SearchError: there is nothing to search, all trials failed, or the journal in `folder`
                is another run's or cannot be written.
            ArgumentError: model, data, criterion and metric do not go together, as the first
                batches show before anything is searched.
            MissingExtraError: the extra of the search or of the runtime is not installed.
            TracingError: the model does not run on the example inputs.
        """
        # In the inference mode of a caller nothing could be trained.
        with (
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            narrated(self.name or self.objective.name) as narrator,
        ):
            return _Run(self, narrator).result()


@final
class _Run:
    """The state of a run: the models, the stopwatch, the journal, the weights of the trials.

    Args:
        settings: the compressor whose run this is.
        narrator: tells a person what is going on.
    """

    def __init__(self, settings: Compressor, narrator: Narrator) -> None:
        self._settings = settings
        self._narrator = narrator
        self._previous = settings.after
        given = settings.model if self._previous is None else self._previous.model
        if given is None:  # the compressor has refused this
            raise AssertionError
        self._model = copy.deepcopy(given).eval()
        self._dense = self._model if self._previous is None else self._previous.dense
        check_extras(settings.runtime)
        narrator.now("checking model and data")
        inputs, _ = first_batch("valloader", settings.valloader)
        self._sample = small_sample_note(settings.eps, settings.metric, settings.valloader, inputs)
        self._inputs: ExampleInputs = (
            inputs if settings.example_inputs is None else settings.example_inputs
        )
        if not isinstance(settings.optimizer, DC):  # which trains nothing
            check_training_step(self._model, settings.trainloader, settings.criterion)
        if settings.testloader is not None:
            first_batch("testloader", settings.testloader)
        self._heldout = settings.testloader or settings.valloader
        self._reference = self._dense_metric()
        self._states = TrialStates(self._path("weights"))

    def _dense_metric(self) -> float:
        if self._previous is not None:
            return self._previous.reference
        self._narrator.now("judging the dense model")
        value = self._validate(self._model)
        if not math.isfinite(value):
            raise ArgumentError(
                f"The metric '{metric_name(self._settings.metric)}' of the dense model is "
                f"{value}, and no budget can be counted from that. Mend the metric or the model.",
            )
        return value

    @property
    def name(self) -> str:
        """How the report calls this study."""
        return self._settings.name or self._settings.objective.name

    def result(self) -> CompressionResult:
        """Search, compress to the chosen level, prove, and return the result."""
        settings = self._settings
        scheme = as_scheme(settings.scheme)
        if scheme.is_structured:
            self._narrator.now("following the channels")
            scheme = scheme.bind(analyze_channels(self._model, self._inputs))
        with (
            Study(self._path("journal.jsonl"), self._header()) as journal,
            Bench(self._dense, self._inputs, settings.runtime) as bench,
        ):
            forge = Forge(
                dense=self._model, scheme=scheme, bench=bench, example_inputs=self._inputs
            )
            search = search_level(
                lambda level: self._measure(forge, level, len(journal.trials)),
                threshold=self._reference - settings.eps + settings.margin,
                maximize=settings.objective.maximize,
                at_zero=self._measure_dense(forge, journal),
                study=journal,
                settings=settings.settings,
            )
            self._tell_choice(search)
            chosen = self._chosen(forge, search)
            return CompressionResult(
                model=chosen.model,
                dense=self._dense,
                search=search,
                evidence=self._evidence(search, chosen, forge),
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
            "metric": metric_name(settings.metric),
            "eps": settings.eps,
            "margin": settings.margin,
            "runtime": settings.runtime,
            "model": fingerprint(self._model),
        }

    def _measure_dense(self, forge: Forge, journal: Study) -> Measurement:
        if journal.trials and journal.trials[0].measurement is not None:
            self._narrator.found(f"going on after {len(journal.trials) - 1} trials")
            return journal.trials[0].measurement
        self._narrator.now(f"measuring {self._settings.objective.name} of the dense model")
        dense = Measurement(
            metric=self._validate(self._model),
            objective=self._settings.objective.evaluate(forge.uncompressed()),
        )
        self._narrator.found(f"dense: {self._words(dense)}")
        return dense

    def _validate(self, model: nn.Module) -> float:
        return metric_value(self._settings.metric, model, self._settings.valloader)

    def _measure(self, forge: Forge, level: float, number: int) -> Measurement:
        place = f"trial {number}, level {level:.4g}"
        data = RecoveryData(
            train=self._settings.trainloader,
            validate=self._validate,
            criterion=self._settings.criterion,
            progress=lambda text: self._narrator.now(f"{place}: {text}"),
        )
        data.progress("compressing")
        try:
            measurement = self._measured(forge, level, data)
        except Exception:
            self._narrator.found(f"{place}: failed")
            raise
        self._narrator.found(f"{place}: {self._words(measurement)}")
        return measurement

    def _measured(self, forge: Forge, level: float, data: RecoveryData) -> Measurement:
        objective = self._settings.objective
        recovered = self._settings.optimizer.recover(self._model, forge.scheme, level, data)
        self._states.save(level, recovered.compressed.state_dict())
        data.progress(f"measuring {objective.name}")
        candidate = forge.candidate(recovered.compressed)
        return Measurement(
            metric=recovered.metric,
            objective=objective.evaluate(candidate),
            details={
                # step 0 of every recovery is direct compression, before any training
                "direct_metric": recovered.history[0].metric,
                "parameters": candidate.parameters(),
                "macs": candidate.macs(),
                "footprint_bytes": candidate.footprint_bytes(),
            },
        )

    def _words(self, measurement: Measurement) -> str:
        objective = self._settings.objective
        metric = metric_name(self._settings.metric)
        return (
            f"{metric} {measurement.metric:.4f}, "
            f"{objective.name} {number(measurement.objective)} {objective.unit}"
        ).rstrip()

    def _tell_choice(self, search: SearchResult) -> None:
        trials = sum(trial.stage != "dense" for trial in search.trials)
        self._narrator.found(f"chose level {search.level:.4g} after {trials} trials")
        self._narrator.now("measuring the chosen model against the dense one")

    def _chosen(self, forge: Forge, search: SearchResult) -> Candidate:
        if search.level == 0.0:
            return forge.uncompressed()
        return forge.candidate(forge.with_state(self._states.load(search.level)))

    def _evidence(self, search: SearchResult, chosen: Candidate, forge: Forge) -> Evidence:
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
                bench=forge.bench,
                metric=settings.metric,
                heldout=self._heldout,
                example_inputs=self._inputs,
            ),
            study(words, search, settings.objective),
            title=settings.title,
            notes=self._notes(search, forge.scheme),
            earlier=None if self._previous is None else self._previous.evidence,
        )

    def _notes(self, search: SearchResult, scheme: Scheme) -> tuple[str, ...]:
        settings = self._settings
        sizes = {name: p.numel() for name, p in self._model.named_parameters()}
        reached = sum(sizes.get(name, 0) for name in scheme.parameters(self._model))
        reach = reach_note(reached, sum(sizes.values()))
        notes = tuple(f"{self.name}: {note}" for note in (self._sample, reach) if note)
        if search.level > 0.0:
            return notes
        note = (
            f"{self.name}: no level kept the metric at {search.threshold:.4f} and improved "
            f"{settings.objective.name}, so this study left the model as it was."
        )
        return (*notes, note)
