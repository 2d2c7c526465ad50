"""The compressor: from a trained model to a compressed one inside an accuracy budget."""

import copy
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast, final

import torch
from torch import nn

from nncfx.compressor import by_candidate, by_level
from nncfx.compressor.bench import Bench
from nncfx.compressor.by_candidate import search_by_candidate
from nncfx.compressor.by_level import search_by_level
from nncfx.compressor.candidate import Candidate, Forge
from nncfx.compressor.evidence import Evidence
from nncfx.compressor.from_config import arguments_from
from nncfx.compressor.journal_header import digest, journal_header
from nncfx.compressor.metrics import Metric, accuracy, metric_name, metric_value
from nncfx.compressor.notes import notes_on
from nncfx.compressor.preflight import (
    check_budget,
    check_extras,
    check_instances,
    check_loaders,
    check_model,
    check_space,
    check_training_step,
    first_batch,
    small_sample_note,
)
from nncfx.compressor.progress import Narrator, narrated
from nncfx.compressor.proof import Exhibits, StudyWords, evidence, study
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.spelling import candidate_words, spelt
from nncfx.compressor.states import TrialStates
from nncfx.compressor.trials import Trials
from nncfx.config import NNCFConfig
from nncfx.errors import ArgumentError
from nncfx.graph.channels import Channels
from nncfx.lc import DC, Recovery, RecoveryData
from nncfx.objectives import Objective
from nncfx.schemes import Scheme, SchemeLike, as_scheme
from nncfx.search import Candidate as Point
from nncfx.search import (
    CandidateStudy,
    JSONValue,
    SearchResult,
    SearchSettings,
    Space,
    SpaceResult,
    SpaceSettings,
    Study,
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
        warm_start: Whether recovery begins with the weights of the nearest finished trial of a
            lower level, instead of the dense model's: the same training gets further, and trials
            depend on those before them.
        stop_hopeless: Whether a trial ends early that has no prospect of keeping the budget
            (`nncfx.search.is_hopeless`).
        margin: How much of the budget to keep in reserve, in [0, eps]: levels are judged on
            validation data, and the best of several trials is in part the luckiest one.
        example_inputs: What is traced, thinned and timed; the first validation batch by default.
        folder: Where the journal and the trials' weights are kept, so that a run that was
            killed goes on where it stopped, and in the end the evidence. None: in memory only.
        runtime: Where time is measured: `"onnxruntime"`, `"openvino"`, `"torch"`.
        threads: CPU threads of a timed call; None leaves the choice to the runtime. With 1, a
            machine that is busy with other work is measured by CPU time, which stays steady.
        space: What to choose from, instead of one level. `scheme` is then a function from a
            candidate of the space to its scheme, applied at the candidate's "level", if it has
            one; `nncfx.schemes.AtLevel` gives parts of a scheme levels of their own.
        settings: How closely and how long to search: `SearchSettings`, or `SpaceSettings` of a
            space.
        name: How the report calls this study; the objective's name by default.
        title: How the report calls the whole; the class of the model by default, or the title of
            the result that this goes on `after`.

    Raises:
        ArgumentError: neither or both of `model` and `after`; `eps` or `margin` out of range; a
            part of the wrong kind, such as a class for an object or a generator for a loader.

    Source: Condensa (Joseph et al., 2019), Listing 1 and Algorithm 1.
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
    margin: float = 0.0
    warm_start: bool = False
    stop_hopeless: bool = False
    example_inputs: ExampleInputs | None = None
    folder: str | Path | None = None
    runtime: str = "onnxruntime"
    threads: int | None = None
    space: Space | None = None
    settings: SearchSettings | SpaceSettings | None = None
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
        check_space(self.space, self.settings, stop_hopeless=self.stop_hopeless)
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

    def scheme_at(self, candidate: Point) -> SchemeLike:
        """Return the scheme of a candidate of the space."""
        if isinstance(self.scheme, Scheme):
            return self.scheme
        return cast("Callable[[Point], SchemeLike]", self.scheme)(candidate)

    @property
    def level_settings(self) -> SearchSettings:
        """The settings of the search of one level."""
        return self.settings if isinstance(self.settings, SearchSettings) else SearchSettings()

    @property
    def space_settings(self) -> SpaceSettings:
        """The settings of the search of a space."""
        return self.settings if isinstance(self.settings, SpaceSettings) else SpaceSettings()

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
        """Search, compress to the chosen level or candidate, prove, and return the result."""
        settings = self._settings
        with self._bench() as bench:
            self._narrator.now(f"building the dense model for {settings.runtime}")
            bench.open()
            search, chosen, scheme = (
                self._of_levels(bench) if settings.space is None else self._of_candidates(bench)
            )
            proof = self._evidence(search, chosen, (bench, scheme))
            if (path := self._path("evidence.json")) is not None:
                proof.write(path)
            return CompressionResult(
                model=chosen.model,
                dense=self._dense,
                search=search,
                evidence=proof,
                metric=settings.metric,
                testloader=self._heldout,
                reference=self._reference,
            )

    def _bench(self) -> Bench:
        settings = self._settings
        return Bench(
            self._dense,
            self._inputs,
            settings.runtime,
            threads=settings.threads,
            # with the journal goes the time that its throughputs and latencies count from
            kept=self._path(f"dense-{digest(self._header)}.json"),
        )

    def _of_levels(self, bench: Bench) -> tuple[SearchResult, Candidate, Scheme]:
        settings, trials = self._settings, self._trials()
        forge = self._forge(bench, cast("SchemeLike", settings.scheme))
        with Study(self._path("journal.jsonl"), self._header) as journal:
            search = search_by_level(
                trials,
                forge,
                journal,
                trials.dense(forge, journal),
                settings.level_settings,
                warm_start=settings.warm_start,
            )
        count = sum(trial.stage != "dense" for trial in search.trials)
        self._tell_choice(f"level {search.level:.4g}", count)
        if search.level == 0.0:
            return search, forge.uncompressed(), forge.scheme
        name = by_level.weights_of(search.level)
        return search, trials.chosen(forge, name), forge.scheme

    def _of_candidates(self, bench: Bench) -> tuple[SpaceResult, Candidate, Scheme]:
        settings, trials = self._settings, self._trials()
        if settings.space is None:  # then one level is searched
            raise AssertionError

        def forge_of(candidate: Point) -> Forge:
            return self._forge(bench, settings.scheme_at(candidate))

        with CandidateStudy(self._path("journal.jsonl"), self._header) as journal:
            search = search_by_candidate(
                trials,
                forge_of,
                journal,
                settings.space,
                settings.space_settings,
                warm_start=settings.warm_start,
            )
        best = search.best
        self._tell_choice(candidate_words(best.candidate), len(search.trials))
        forge = forge_of(best.candidate)
        return search, trials.chosen(forge, by_candidate.weights_of(best)), forge.scheme

    def _forge(self, bench: Bench, given: SchemeLike) -> Forge:
        scheme = as_scheme(given)
        if scheme.is_structured:
            scheme = scheme.bind(self._channels)
        return Forge(dense=self._model, scheme=scheme, bench=bench, example_inputs=self._inputs)

    @functools.cached_property
    def _channels(self) -> Channels:
        self._narrator.now("following the channels")
        return analyze_channels(self._model, self._inputs)

    def _trials(self) -> Trials:
        settings = self._settings
        return Trials(
            recovery=settings.optimizer,
            objective=settings.objective,
            data=RecoveryData(
                train=settings.trainloader,
                validate=self._validate,
                criterion=settings.criterion,
            ),
            states=TrialStates(self._path("weights")),
            narrator=self._narrator,
            metric=metric_name(settings.metric),
            threshold=self._reference - settings.eps + settings.margin,
            reference=self._reference,
            stop_hopeless=settings.stop_hopeless,
        )

    def _path(self, name: str) -> Path | None:
        folder = self._settings.folder
        return None if folder is None else Path(folder) / name

    @functools.cached_property
    def _header(self) -> dict[str, JSONValue]:
        return journal_header(vars(self._settings), self._model)

    def _validate(self, model: nn.Module) -> float:
        return metric_value(self._settings.metric, model, self._settings.valloader)

    def _tell_choice(self, what: str, trials: int) -> None:
        self._narrator.found(f"chose {what} after {trials} trials")
        self._narrator.now("measuring the chosen model against the dense one")

    def _evidence(
        self, search: SearchResult | SpaceResult, chosen: Candidate, made: tuple[Bench, Scheme]
    ) -> Evidence:
        bench, scheme = made
        notes = notes_on(search, scheme, self._model, self._settings.objective)
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
                study=self.name,
                metric=settings.metric,
                heldout=self._heldout,
                example_inputs=self._inputs,
            ),
            study(words, search, settings.objective) if isinstance(search, SearchResult) else None,
            title=settings.title,
            notes=tuple(note for note in (self._sample, *notes) if note),
            earlier=None if self._previous is None else self._previous.evidence,
        )
