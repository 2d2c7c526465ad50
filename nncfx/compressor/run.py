"""A run of the compressor: trials, the choice, the proof."""

import copy
import functools
import math
from pathlib import Path
from typing import cast, final

from torch import nn

from nncfx.compressor.bench import Bench
from nncfx.compressor.by_candidate import plan_of as plan_of_candidate
from nncfx.compressor.by_candidate import search_by_candidate
from nncfx.compressor.by_level import plan_of as plan_of_level
from nncfx.compressor.by_level import search_by_level
from nncfx.compressor.candidate import Candidate, Forge
from nncfx.compressor.evidence import Evidence
from nncfx.compressor.journal_header import data_facts, digest, journal_header
from nncfx.compressor.metrics import metric_name, metric_value
from nncfx.compressor.notes import notes_on
from nncfx.compressor.preflight import (
    check_extras,
    check_training_step,
    first_batch,
    small_sample_note,
)
from nncfx.compressor.progress import Narrator
from nncfx.compressor.proof import Exhibits, StudyWords, evidence, study
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.settings import CompressorSettings
from nncfx.compressor.spelling import candidate_words, spelt
from nncfx.compressor.states import TrialStates
from nncfx.compressor.trials import Trials
from nncfx.errors import ArgumentError
from nncfx.graph.channels import Channels
from nncfx.lc import DC, RecoveryData
from nncfx.schemes import Scheme, SchemeLike, as_scheme
from nncfx.search import Candidate as Point
from nncfx.search import CandidateStudy, JSONValue, SearchResult, SpaceResult, Study
from nncfx.storage.whole_models import require_whole
from nncfx.tracing import ExampleInputs, analyze_channels

__all__ = ["Run"]


@final
class Run:
    """The state of a run: the models, the stopwatch, the journal, the weights of the trials.

    Args:
        settings: the compressor whose run this is.
        narrator: tells a person what is going on.
    """

    def __init__(self, settings: CompressorSettings, narrator: Narrator) -> None:
        self._settings = settings
        self._narrator = narrator
        self._previous = settings.after
        given = settings.model if self._previous is None else self._previous.model
        if given is None:  # the compressor has refused this
            raise AssertionError
        require_whole(given, "compressed")
        self._model = copy.deepcopy(given).eval()
        self._dense = self._model if self._previous is None else self._previous.dense
        check_extras(settings.runtime)
        if (path := self._path("evidence.json")) is not None:
            Evidence.check_place(path)
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
                recipes=(() if self._previous is None else self._previous.recipes)
                + chosen.recipes,
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
        with Study(self._path("journal.jsonl"), self._header, self._data()) as journal:
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
        before = search.trials[: search.chosen.number]
        plan = plan_of_level(search.level, before, forge, warm_start=settings.warm_start)
        return search, trials.chosen(plan), forge.scheme

    def _of_candidates(self, bench: Bench) -> tuple[SpaceResult, Candidate, Scheme]:
        settings, trials = self._settings, self._trials()
        if settings.space is None:  # then one level is searched
            raise AssertionError

        def forge_of(candidate: Point) -> Forge:
            return self._forge(bench, settings.scheme_at(candidate))

        with CandidateStudy(self._path("journal.jsonl"), self._header, self._data()) as journal:
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
        near = settings.space if settings.warm_start else None
        plan = plan_of_candidate(best.candidate, search.trials[: best.number], forge_of, near)
        return search, trials.chosen(plan), plan.forge().scheme

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

    def _data(self) -> dict[str, JSONValue]:
        settings = self._settings
        if settings.folder is None:
            return {}
        return data_facts(trainloader=settings.trainloader, valloader=settings.valloader)

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
