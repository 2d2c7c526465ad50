"""A run of the compressor: trials, the choice, the proof."""

import contextlib
import copy
import functools
import math
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast, final

from nncfx.compressor.build_evidence import EvidenceInputs, StudyWords, build_evidence, study
from nncfx.compressor.evaluation.judge import Judge
from nncfx.compressor.evaluation.metrics import accuracy, metric_name
from nncfx.compressor.evaluation.validation_data import divided
from nncfx.compressor.journal_header import data_facts, journal_header
from nncfx.compressor.notes import noise_note, notes_on
from nncfx.compressor.preflight import (
    check_extras,
    check_training_step,
    first_batch,
    small_sample_note,
)
from nncfx.compressor.progress import Narrator
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.settings import CompressorSettings
from nncfx.compressor.trials import candidate_search
from nncfx.compressor.trials.candidate import Candidate, Factories
from nncfx.compressor.trials.candidate_search import plan_of_trial, search_by_candidate
from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.compressor.trials.level_search import plan_of as plan_of_level
from nncfx.compressor.trials.level_search import search_by_level
from nncfx.compressor.trials.trial_runner import Trials
from nncfx.compressor.trials.trial_weights import TrialStates, digest
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.formatting import candidate_words, spelt
from nncfx.evidence.judgement import Judgement
from nncfx.lc import DC, RecoveryData
from nncfx.schemes import Scheme, SchemeLike
from nncfx.search import CandidateStudy, JSONValue, SearchResult, SpaceResult, Study, known_to
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing import ExampleInputs

__all__ = ["Run"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Winner:
    """What was chosen, and what the judging data say of it."""

    search: SearchResult | SpaceResult
    candidate: Candidate
    scheme: Scheme
    judgement: Judgement
    metric: float


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
        self._scratch: Path | None = None
        self._previous = settings.after
        self._executor = settings.workers_of()
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
        least = math.ceil(1 / settings.eps) if settings.metric is accuracy and settings.eps else 1
        self._validation = divided(
            settings.valloader, settings.testloader, settings.held_out, least
        )
        self._sample = small_sample_note(
            settings.eps, settings.metric, self._validation.chooses, inputs
        )
        self._inputs: ExampleInputs = (
            inputs if settings.example_inputs is None else settings.example_inputs
        )
        if not isinstance(settings.optimizer, DC):  # which trains nothing
            check_training_step(self._model, settings.trainloader, settings.criterion)
        if settings.testloader is not None:
            first_batch("testloader", settings.testloader)
        narrator.now("judging the dense model")
        self._judge = Judge(self._dense, settings.metric, self._validation, settings.eps)

    @property
    def name(self) -> str:
        """How the report calls this study."""
        return self._settings.name or self._settings.objective.name

    def result(self) -> CompressionResult:
        """Search, compress to the chosen level or candidate, prove, and return the result."""
        settings = self._settings
        with contextlib.ExitStack() as stack:
            if settings.folder is None and self._executor is not None:
                # weights pass from process to process in files
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="nncfx-"))
                self._scratch = Path(scratch)
            timer = stack.enter_context(self._timer())
            self._narrator.now(f"building the dense model for {settings.runtime}")
            timer.open()
            winner = (
                self._of_levels(timer) if settings.space is None else self._of_candidates(timer)
            )
            search, chosen = winner.search, winner.candidate
            proof = self._evidence(winner, timer)
            if (path := self._path("evidence.json")) is not None:
                proof.write(path)
            return CompressionResult(
                model=chosen.model,
                dense=self._dense,
                search=search,
                evidence=proof,
                metric=settings.metric,
                testloader=self._validation.judges,
                reference=self._judge.reference,
                recipes=(() if self._previous is None else self._previous.recipes)
                + chosen.recipes,
            )

    def _timer(self) -> CandidateTimer:
        settings = self._settings
        return CandidateTimer(
            self._dense,
            self._inputs,
            settings.runtime,
            threads=settings.threads,
            # with the journal goes the time that its throughputs and latencies count from
            quiet=nullcontext if self._executor is None else self._executor.quiet,
            kept=self._path(f"dense-{digest(self._header)}.json"),
        )

    def _of_levels(self, timer: CandidateTimer) -> "_Winner":
        settings, trials = self._settings, self._trials()
        factory = self._factories(timer).of(cast("SchemeLike", settings.scheme))
        with Study(self._path("journal.jsonl"), self._header, self._data()) as journal:
            search = search_by_level(
                trials,
                factory,
                journal,
                trials.dense(factory, journal),
                settings.level_settings,
                warm_start=settings.warm_start,
            )
        count = sum(trial.stage != "dense" for trial in search.trials)
        self._log_choice(f"level {search.level:.4g}", count)

        def candidate(found: SearchResult) -> Candidate:
            if found.level == 0.0:
                return factory.uncompressed()
            before = known_to(found.chosen, found.trials)
            plan = plan_of_level(found.level, before, factory, warm_start=settings.warm_start)
            return trials.chosen(plan)

        winner = self._judged(search, candidate(search), factory.scheme)
        while not winner.judgement.is_inside and search.level > 0.0:
            self._log_refusal(f"level {search.level:.4g}", winner)
            search = search.safer()
            winner = self._judged(search, candidate(search), factory.scheme, winner)
        return winner

    def _of_candidates(self, timer: CandidateTimer) -> "_Winner":
        settings, trials = self._settings, self._trials()
        if settings.space is None:  # then one level is searched
            raise AssertionError

        factory_of = self._factories(timer)
        with CandidateStudy(self._path("journal.jsonl"), self._header, self._data()) as journal:
            search = search_by_candidate(
                trials,
                factory_of,
                journal,
                settings.space,
                settings.space_settings,
                warm_start=settings.warm_start,
            )
        self._log_choice(candidate_words(search.best.candidate), len(search.trials))
        near = settings.space if settings.warm_start else None
        winner = None
        following: SpaceResult | None = search
        while following is not None:
            best = following.best
            plan = plan_of_trial(best, search.trials, factory_of, near)
            winner = self._judged(following, trials.chosen(plan), plan.factory().scheme, winner)
            if winner.judgement.is_inside:
                break
            self._log_refusal(candidate_words(best.candidate), winner)
            following = candidate_search.safer(following)
        if winner is None:  # there is a best trial, or the search has raised an error
            raise AssertionError
        return winner

    def _judged(
        self,
        search: SearchResult | SpaceResult,
        candidate: Candidate,
        scheme: Scheme,
        before: "_Winner | None" = None,
    ) -> "_Winner":
        """Return a choice with what the judging data say of it, `before` having been refused."""
        judged = 1 if before is None else before.judgement.judged + 1
        judgement, value = self._judge.judgement(candidate.model, judged)
        return _Winner(
            search=search, candidate=candidate, scheme=scheme, judgement=judgement, metric=value
        )

    def _factories(self, timer: CandidateTimer) -> Factories:
        settings = self._settings
        self._narrator.now("following the channels")
        return Factories(
            dense=self._model,
            scheme=settings.scheme,
            timer=timer,
            example_inputs=self._inputs,
        )

    def _trials(self) -> Trials:
        settings = self._settings
        return Trials(
            recovery=settings.optimizer,
            objective=settings.objective,
            data=RecoveryData(
                train=settings.trainloader,
                validate=self._judge.metric_of,
                criterion=settings.criterion,
            ),
            states=TrialStates(self._path("weights") or self._scratch),
            narrator=self._narrator,
            metric=metric_name(settings.metric),
            threshold=self._judge.reference - settings.eps + (settings.margin or 0.0),
            reference=self._judge.reference,
            standard_error=self._judge.standard_error if settings.margin is None else None,
            stop_hopeless=settings.stop_hopeless,
            executor=self._executor,
        )

    def _path(self, name: str) -> Path | None:
        folder = self._settings.folder
        return None if folder is None else Path(folder) / name

    @functools.cached_property
    def _header(self) -> dict[str, JSONValue]:
        return journal_header(vars(self._settings), self._model, self._validation.header)

    def _data(self) -> dict[str, JSONValue]:
        settings = self._settings
        if settings.folder is None:
            return {}
        chooses = self._validation.chooses if self._validation.header else None
        return data_facts(settings.trainloader, settings.valloader, chooses)

    def _log_choice(self, what: str, trials: int) -> None:
        self._narrator.found(f"chose {what} after {trials} trials")
        self._narrator.now("measuring the chosen model against the dense one")

    def _log_refusal(self, what: str, winner: "_Winner") -> None:
        self._narrator.found(
            f"{what}: {winner.judgement.words(metric_name(self._settings.metric))}"
        )

    def _evidence(self, winner: "_Winner", timer: CandidateTimer) -> Evidence:
        search, settings = winner.search, self._settings
        notes = (
            self._sample,
            *notes_on(search, winner.scheme, self._model, settings.objective),
            self._validation.note,
            noise_note(search, winner.judgement, settings.margin),
        )
        words = StudyWords(
            name=self.name,
            scheme=spelt(settings.scheme),
            recovery=spelt(settings.optimizer),
            budget=settings.eps,
        )
        return build_evidence(
            EvidenceInputs(
                dense=self._dense,
                chosen=winner.candidate,
                timer=timer,
                study=self.name,
                metric=metric_name(settings.metric),
                accuracies=(self._judge.dense_metric, winner.metric),
                judgement=winner.judgement,
                example_inputs=self._inputs,
            ),
            study(words, search, settings.objective) if isinstance(search, SearchResult) else None,
            title=settings.title,
            notes=tuple(note for note in notes if note),
            earlier=None if self._previous is None else self._previous.evidence,
        )
