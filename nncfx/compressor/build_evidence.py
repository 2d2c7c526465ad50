"""Builds the evidence of a finished run from measurements of its models."""

import datetime as dt
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import final

import torch
from safetensors.torch import save as safetensors_bytes
from torch import nn

from nncfx.compressor.evaluation.examples import one_example
from nncfx.compressor.trials.candidate import CandidateModel, packed_bytes
from nncfx.compressor.trials.candidate_timer import CandidateTimer
from nncfx.evidence.evidence import Evidence, ModelFacts, StudyEvidence
from nncfx.evidence.judgement import Judgement
from nncfx.evidence.layer_table import layer_rows
from nncfx.evidence.machine import machine_facts, version_facts
from nncfx.evidence.network_table import operation_facts, weight_facts, with_earlier_changes
from nncfx.graph.macs import total_macs
from nncfx.runtimes import Timing
from nncfx.schemes import footprint_bytes, nonzero_parameters
from nncfx.storage.models.model_state import model_state
from nncfx.tracing import ExampleInputs, trace
from nncfx.tracing.hooks.store import own_parameters

# The final comparison supports the claim, so it is timed longer than those of the search.
_PROOF_SECONDS = 2.0


def fingerprint(model: nn.Module) -> str:
    """Return a digest of the model's class, the names, the shapes and the bits of its state."""
    digest = hashlib.sha256(type(model).__name__.encode())
    for name, value in model_state(model).items():
        tensor = value.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceInputs:
    """The inputs of `build_evidence`.

    Attributes:
        dense: The model the run started from.
        chosen: The chosen candidate.
        timer: Times candidates against `dense`.
        study: The name of the study in the report; its notes start with it.
        metric: The name of the metric.
        accuracies: The metric of `dense` and of `chosen`, on the data that judge.
        judgement: The judgement of `chosen` on those data.
        example_inputs: The inputs of one timed call.
    """

    dense: nn.Module
    chosen: CandidateModel
    timer: CandidateTimer
    study: str
    metric: str
    accuracies: tuple[float, float]
    judgement: Judgement
    example_inputs: ExampleInputs


def _program() -> str:
    """Return the command as a user would type it: "nncfx" for `python -m nncfx`."""
    script = Path(sys.argv[0])
    return script.parent.name if script.name == "__main__.py" else script.name


def build_evidence(
    inputs: EvidenceInputs,
    of_study: StudyEvidence,
    *,
    title: str | None,
    notes: tuple[str, ...],
    earlier: Evidence | None,
) -> Evidence:
    """Measure the inputs and return the evidence, after that of an `earlier` run if given."""
    dense, chosen, timer = inputs.dense, inputs.chosen, inputs.timer
    before, after = timer.compare(chosen.model, seconds=_PROOF_SECONDS)
    one = one_example(inputs.example_inputs)
    layers = layer_rows(dense, chosen.model, one, timer.layer_times(chosen.model))
    names = [row.module for row in layers]
    models = chosen.compressed, chosen.model
    weights = weight_facts(names, models, dense, inputs.example_inputs)
    errors = [] if chosen.thinning is None else [chosen.thinning.max_error]
    if earlier is not None and earlier.max_thinning_error is not None:
        errors.append(earlier.max_thinning_error)
    return Evidence(
        title=title or (earlier.title if earlier else type(dense).__name__),
        created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        metric=inputs.metric,
        runtime=timer.runtime,
        machine=machine_facts(),
        versions=version_facts(),
        dense=_facts(inputs, None, before),
        compressed=_facts(inputs, chosen, after),
        studies=(*(earlier.studies if earlier else ()), of_study),
        layers=layers,
        max_thinning_error=max(errors, default=None),
        files={},
        notes=(
            *(earlier.notes if earlier else ()),
            *(f"{inputs.study}: {note}" for note in (*notes, *_clock_notes(before))),
        ),
        command=" ".join([_program(), *sys.argv[1:]]),
        judgement=inputs.judgement,
        batch=before.examples,
        threads=before.threads,
        operations=operation_facts(trace(chosen.model, one)),
        weights=with_earlier_changes(weights, earlier.weights if earlier else ()),
    )


def _clock_notes(timing: Timing) -> tuple[str, ...]:
    """Return remarks on latencies that are not wall-clock time."""
    if timing.clock == "wall":
        return ()
    held_up = timing.held_up or 0.0
    return (
        f"latencies are CPU time of one thread: other work held up {held_up:.0%} of the calls.",
    )


def model_facts(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    accuracy: float,
    timing: Timing | None,
    footprint: int | None = None,
    file_bytes: int | None = None,
) -> ModelFacts:
    """Return the facts about `model` that a report shows.

    Args:
        model: dense, or compressed and stripped.
        example_inputs: the first example is used to count MACs.
        accuracy: of the model.
        timing: of the model; None if it was not timed.
        footprint: bytes of non-zero parameters; None: computed by `footprint_bytes` from `model`.
        file_bytes: of its `.nncfx` file; None: the size as safetensors, with the packed size for
            comparison.
    """
    packed = packed_bytes(model) if file_bytes is None else file_bytes
    return ModelFacts(
        accuracy=accuracy,
        parameters=sum(p.numel() for p in own_parameters(model)),
        nonzero=nonzero_parameters(model),
        macs=total_macs(trace(model, one_example(example_inputs))),
        footprint_bytes=footprint_bytes(model) if footprint is None else footprint,
        file_bytes=_file_bytes(model) if file_bytes is None else file_bytes,
        packed_bytes=packed,
        latency_ms=None if timing is None else timing.median_ms,
        latency_interval_ms=None if timing is None else timing.interval_ms,
        throughput=None if timing is None else timing.throughput,
    )


def _facts(inputs: EvidenceInputs, chosen: CandidateModel | None, timing: Timing) -> ModelFacts:
    """Return the facts about `chosen`, or about the dense model if it is None."""
    return model_facts(
        inputs.dense if chosen is None else chosen.model,
        inputs.example_inputs,
        accuracy=inputs.accuracies[chosen is not None],
        timing=timing,
        footprint=None if chosen is None else footprint_bytes(chosen.compressed),
        file_bytes=None if chosen is None else int(chosen.file_bytes()),
    )


def _file_bytes(model: nn.Module) -> int:
    state = {name: one.detach().clone().contiguous() for name, one in model_state(model).items()}
    return len(safetensors_bytes(state))
