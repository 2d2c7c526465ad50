"""A run of the compressor in four stages: prepare, search, rebuild, prove."""

import contextlib
import logging
import math
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import cast

from nncfx.compressor.build_evidence import EvidenceInputs, build_evidence
from nncfx.compressor.evaluation.judge import judge_against
from nncfx.compressor.evaluation.metrics import accuracy, metric_name
from nncfx.compressor.evaluation.validation_data import divided
from nncfx.compressor.journal_header import data_facts, journal_header
from nncfx.compressor.notes import noise_note, notes_on
from nncfx.compressor.preflight import (
    check_extras,
    check_scheme,
    check_training_step,
    first_batch,
    small_sample_note,
)
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.settings import CompressorSettings
from nncfx.compressor.stages import Found, Prepared, Rebuilt
from nncfx.compressor.study_evidence import StudyWords, space_study, study
from nncfx.compressor.trials import candidate_search
from nncfx.compressor.trials.candidate import CandidateModel, Factories
from nncfx.compressor.trials.candidate_search import plan_of_trial, search_by_candidate
from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.compressor.trials.level_search import plan_of as plan_of_level
from nncfx.compressor.trials.level_search import search_by_level
from nncfx.compressor.trials.trial_runner import Trials
from nncfx.compressor.trials.trial_weights import TrialStates, digest
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.formatting import spelt
from nncfx.lc import DC, RecoveryData
from nncfx.narration import Narrator
from nncfx.schemes import Scheme, SchemeLike
from nncfx.search import CandidateStudy, JSONValue, SearchResult, SpaceResult, Study, known_to
from nncfx.storage.models.whole_models import require_whole
from nncfx.tracing.calls.devices import device_of, on_device
from nncfx.tracing.calls.model_copy import copy_of

_LOGGER = logging.getLogger(__name__)


def compress(settings: CompressorSettings, narrator: Narrator) -> CompressionResult:
    """Prepare, search, rebuild and prove; write the evidence to the run's folder, if any."""
    prepared = prepare(settings, narrator)
    with _scratch(prepared) as scratch, _timer(prepared) as timer:
        narrator.now(f"building the dense model for {settings.runtime}")
        timer.open()
        result = prove(prepared, rebuild(prepared, search(prepared, timer, scratch)), timer)
    if (path := prepared.path("evidence.json")) is not None:
        result.evidence.write(path)
    return result


def prepare(settings: CompressorSettings, narrator: Narrator) -> Prepared:
    """Check that model, data, criterion and metric fit together, and judge the dense model.

    Raises:
        ArgumentError: they do not.
        CompressionError: the scheme finds none of its layers in the model.
        MissingExtraError: an extra is not installed.
        StorageError: evidence.json in the folder is not an evidence file.
    """
    before, executor = settings.after, settings.workers_of()
    given = settings.model if before is None else before.model
    assert given is not None  # noqa: S101 (checked by the compressor)
    require_whole(given, "compressed")
    model = copy_of(given).eval()
    dense = model if before is None else before.dense
    check_extras(settings.runtime)
    if settings.space is None:
        check_scheme(cast("SchemeLike", settings.scheme), model)
    if settings.folder is not None:
        Evidence.check_place(Path(settings.folder) / "evidence.json")
    narrator.now("checking model and data")
    inputs, _ = first_batch("valloader", settings.valloader)
    least = math.ceil(1 / settings.eps) if settings.metric is accuracy and settings.eps else 1
    validation = divided(settings.valloader, settings.testloader, settings.held_out, least)
    sample_note = small_sample_note(settings.eps, settings.metric, validation.chooses, inputs)
    if not isinstance(settings.optimizer, DC):  # DC does not train
        check_training_step(model, settings.trainloader, settings.criterion)
    if settings.testloader is not None:
        first_batch("testloader", settings.testloader)
    narrator.now("judging the dense model")
    examples = inputs if settings.example_inputs is None else settings.example_inputs
    return Prepared(
        settings=settings,
        narrator=narrator,
        executor=executor,
        model=model,
        dense=dense,
        example_inputs=on_device(device_of(model), examples),
        validation=validation,
        judge=judge_against(dense, settings.metric, validation, settings.eps),
        sample_note=sample_note,
        header=journal_header(vars(settings), model, validation.header),
    )


def search(prepared: Prepared, timer: CandidateTimer, scratch: Path | None) -> Found:
    """Search for the level, or the candidate of a space, with the best objective.

    Args:
        prepared: The run.
        timer: Times candidates against the dense model.
        scratch: Where processes exchange weights if the run has no folder.

    Raises:
        SearchError: there is nothing to search, all trials failed, or the journal belongs to
            another run or cannot be written.
        MachineError: memory, disk or device failed in a trial.
    """
    settings, narrator = prepared.settings, prepared.narrator
    trials = _trials(prepared, scratch)
    narrator.now("following the channels")
    factories = Factories(
        dense=prepared.model,
        scheme=settings.scheme,
        timer=timer,
        example_inputs=prepared.example_inputs,
    )
    journal = prepared.path("journal.jsonl")
    result: SearchResult | SpaceResult
    if settings.space is None:
        factory = factories.of(cast("SchemeLike", settings.scheme))
        with Study(journal, prepared.header, _data_facts(prepared)) as levels:
            result = search_by_level(
                trials,
                factory,
                levels,
                trials.dense(factory, levels),
                settings.level_settings,
                warm_start=settings.warm_start,
            )
        count = sum(trial.stage != "dense" for trial in result.trials)
    else:
        with CandidateStudy(journal, prepared.header, _data_facts(prepared)) as candidates:
            result = search_by_candidate(
                trials,
                factories,
                candidates,
                settings.space,
                settings.space_settings,
                warm_start=settings.warm_start,
            )
        count = len(result.trials)
    found = Found(result=result, trials=trials, factories=factories)
    narrator.found(f"chose {found.words} after {count} trials")
    return found


def rebuild(prepared: Prepared, found: Found) -> Rebuilt:
    """Rebuild the chosen model; choose a safer one while the judging data reject the winner."""
    judged = 0
    while True:
        judged += 1
        prepared.narrator.now(f"making {found.words} again, and judging it")
        candidate, scheme = _made(prepared.settings, found)
        judgement, metric = prepared.judge.judgement(candidate.model, judged)
        rebuilt = Rebuilt(
            result=found.result,
            candidate=candidate,
            scheme=scheme,
            judgement=judgement,
            metric=metric,
        )
        if judgement.is_inside or _is_dense(found.result):
            return rebuilt
        words = judgement.words(metric_name(prepared.settings.metric))
        prepared.narrator.found(f"{found.words}: {words}")
        safer = _safer(found.result)
        if safer is None:
            return rebuilt
        found = replace(found, result=safer)


def prove(prepared: Prepared, rebuilt: Rebuilt, timer: CandidateTimer) -> CompressionResult:
    """Measure the winner against the dense model, and return it with its evidence."""
    settings, result, before = prepared.settings, rebuilt.result, prepared.settings.after
    prepared.narrator.now(f"timing the chosen model against the dense one in {settings.runtime}")
    # in a space each candidate can have its own scheme
    scheme = rebuilt.scheme if isinstance(result, SpaceResult) else settings.scheme
    words = StudyWords(
        name=prepared.name,
        scheme=spelt(scheme),
        recovery=spelt(settings.optimizer),
        budget=settings.eps,
    )
    searched = (
        study(words, result, settings.objective)
        if isinstance(result, SearchResult)
        else space_study(words, result, settings.objective, prepared.judge.reference)
    )
    if searched.why_unchanged:
        _LOGGER.warning("Unchanged: %s", searched.why_unchanged)
    notes = (
        prepared.sample_note,
        *notes_on(result, rebuilt.scheme, prepared.model, searched.why_unchanged),
        prepared.validation.note,
        noise_note(result, rebuilt.judgement, settings.margin),
    )
    evidence = build_evidence(
        EvidenceInputs(
            dense=prepared.dense,
            chosen=rebuilt.candidate,
            timer=timer,
            study=prepared.name,
            metric=metric_name(settings.metric),
            accuracies=(prepared.judge.dense_metric, rebuilt.metric),
            judgement=rebuilt.judgement,
            example_inputs=prepared.example_inputs,
        ),
        searched,
        title=settings.title,
        notes=tuple(note for note in notes if note),
        earlier=None if before is None else before.evidence,
    )
    return CompressionResult(
        model=rebuilt.candidate.model,
        dense=prepared.dense,
        search=result,
        evidence=evidence,
        metric=settings.metric,
        testloader=prepared.validation.judges,
        reference=prepared.judge.reference,
        recipes=(() if before is None else before.recipes) + rebuilt.candidate.recipes,
    )


@contextlib.contextmanager
def _scratch(prepared: Prepared) -> Iterator[Path | None]:
    """Yield a folder in which processes exchange weights, if the run has no folder."""
    if prepared.settings.folder is not None or prepared.executor is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="nncfx-") as folder:
        yield Path(folder)


def _timer(prepared: Prepared) -> CandidateTimer:
    return CandidateTimer(
        prepared.dense,
        prepared.example_inputs,
        prepared.settings.runtime,
        threads=prepared.settings.threads,
        # throughputs and latencies in the journal are relative to this time
        quiet=nullcontext if prepared.executor is None else prepared.executor.quiet,
        kept=prepared.path(f"dense-{digest(prepared.header)}.json"),
    )


def _trials(prepared: Prepared, scratch: Path | None) -> Trials:
    settings, judge = prepared.settings, prepared.judge
    return Trials(
        recovery=settings.optimizer,
        objective=settings.objective,
        data=RecoveryData(
            train=settings.trainloader, validate=judge.metric_of, criterion=settings.criterion
        ),
        states=TrialStates(prepared.path("weights") or scratch),
        narrator=prepared.narrator,
        metric=metric_name(settings.metric),
        threshold=judge.reference - settings.eps + (settings.margin or 0.0),
        reference=judge.reference,
        standard_error=judge.standard_error if settings.margin is None else None,
        stop_hopeless=settings.stop_hopeless,
        executor=prepared.executor,
    )


def _data_facts(prepared: Prepared) -> dict[str, JSONValue]:
    settings, validation = prepared.settings, prepared.validation
    if settings.folder is None:
        return {}
    chooses = validation.chooses if validation.header else None
    return data_facts(settings.trainloader, settings.valloader, chooses)


def _made(settings: CompressorSettings, found: Found) -> tuple[CandidateModel, Scheme]:
    """Return the chosen candidate of a search, and the scheme that compressed it."""
    result, warm_start = found.result, settings.warm_start
    if isinstance(result, SpaceResult):
        near = settings.space if warm_start else None
        plan = plan_of_trial(result.best, result.trials, found.factories, near)
        return found.trials.chosen(plan), plan.factory().scheme
    factory = found.factories.of(cast("SchemeLike", settings.scheme))
    if _is_dense(result):
        return factory.uncompressed(), factory.scheme
    before = known_to(result.chosen, result.trials)
    plan = plan_of_level(result.level, before, factory, warm_start=warm_start)
    return found.trials.chosen(plan), factory.scheme


def _is_dense(result: SearchResult | SpaceResult) -> bool:
    return isinstance(result, SearchResult) and result.level == 0.0


def _safer(result: SearchResult | SpaceResult) -> SearchResult | SpaceResult | None:
    """Return the search with the next safer choice; None if there is none."""
    return candidate_search.safer(result) if isinstance(result, SpaceResult) else result.safer()
