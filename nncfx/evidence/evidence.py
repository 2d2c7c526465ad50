"""The claims and the evidence of a compression run, as plain data.

The report, the command line and later readers only use this: no model, no torch.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nncfx.errors import ArgumentError, StorageError
from nncfx.evidence.exported import ExportedFile
from nncfx.evidence.judgement import Judgement
from nncfx.evidence.network_facts import OperationFacts, WeightFacts
from nncfx.json_codec import decode, encode, load_object
from nncfx.storage.formats.whole_file import read_text, write_text

EVIDENCE_FORMAT = "nncfx-evidence"
EVIDENCE_VERSION = 1
STAGES = ("dense", "accuracy", "objective")


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """The measurements of one model.

    Attributes:
        accuracy: The metric on held-out data; a fraction in [0, 1] for accuracy.
        parameters: Number of parameter elements, including zeros.
        nonzero: Number of parameter elements that are not zero.
        macs: Multiply-accumulates of one forward of one example.
        footprint_bytes: Bytes of the non-zero parameters (Condensa's definition).
        file_bytes: Bytes of the model as a file: of the dense one as safetensors, of the
            compressed one as `.nncfx`; None if none was written.
        packed_bytes: Bytes of the model as `.nncfx`, dense or compressed, for a fair comparison;
            None in evidence of earlier versions.
        latency_ms: Median time of one forward, in milliseconds; None if not timed.
        latency_interval_ms: Ends of the interval of that median; None if not timed.
        throughput: Examples per second; None if not timed.
    """

    accuracy: float
    parameters: int
    nonzero: int
    macs: int
    footprint_bytes: int
    file_bytes: int | None
    latency_ms: float | None
    latency_interval_ms: tuple[float, float] | None
    throughput: float | None
    packed_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One evaluation of one level, or of one candidate of a space.

    Attributes:
        number: Position in the order of evaluation; in a search of a level the dense model is 0.
        stage: "dense" (level 0), "accuracy" (Condensa's first stage) or "objective" (its second).
        level: The evaluated level, in [0, 1).
        accuracy: Its metric; None if not measured.
        objective: Its objective; None if not measured.
        state: "done", as in the search's journal; every other state counts as failed.
        seconds: Wall time of the evaluation.
        error: Why it failed; None if it did not, or if unknown.
        standard_error: Of the accuracy against the dense model's; None if unknown.
        parameters: Parameter elements of the evaluated model; None if not counted.
        macs: Its multiply-accumulates for one example; None if not counted.
        footprint_bytes: Bytes of its non-zero parameters; None if not counted.
        candidate: The candidate in words; "" if the level describes it.

    Raises:
        ArgumentError: The stage is not one of `STAGES`.
    """

    number: int
    stage: str
    level: float
    accuracy: float | None
    objective: float | None
    state: str
    seconds: float
    error: str | None = None
    standard_error: float | None = None
    parameters: int | None = None
    macs: int | None = None
    footprint_bytes: int | None = None
    candidate: str = ""

    def __post_init__(self) -> None:
        """Refuse a stage that the report does not know."""
        if self.stage not in STAGES:
            raise ArgumentError(
                f"The stage of sample {self.number} is {self.stage!r}; a search has the stages "
                f"{', '.join(map(repr, STAGES))}, and any other would not be shown."
            )

    @property
    def is_done(self) -> bool:
        """Whether the evaluation ended successfully."""
        return self.state == "done"


@dataclass(frozen=True, kw_only=True)
class Curve:
    """The model of a search over the level: mean and band at `levels`, all equally long.

    Raises:
        ArgumentError: The four are not equally long.
    """

    levels: tuple[float, ...]
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse a curve that cannot be drawn."""
        lengths = [len(getattr(self, f.name)) for f in dataclasses.fields(self)]
        if len(set(lengths)) != 1:
            raise ArgumentError(
                f"A curve has levels, mean, lower and upper of lengths {lengths}; "
                "one value of each belongs to each level. Give four of one length."
            )


@dataclass(frozen=True, kw_only=True)
class StudyEvidence:
    """One search of a level, or of a space, for one objective.

    Attributes:
        name: Name of the study, unique in the evidence.
        scheme: The scheme, in readable form.
        recovery: The recovery method, in readable form.
        objective_name: The objective, such as "throughput".
        objective_unit: Its unit, such as "images/s".
        maximize: Whether more of it is better.
        threshold: The accuracy below which a level is not admissible.
        dense_accuracy: The metric of the dense model.
        dense_objective: The objective of the dense model; None in a search of a space, which does
            not evaluate it.
        samples: All evaluations of both stages, in order.
        accuracy_curve: Model of accuracy over level; None if the search has none.
        objective_curve: Model of the objective over level; None if the search has none.
        level_accuracy: The level at which the first stage ended (Condensa's s_acc); in a space the
            chosen level.
        chosen_level: The chosen level.
        comparison: Direct compression, without recovery, if measured.
        budget: How far the metric may fall below that of the evidence's dense model; None if only
            `dense_accuracy` minus `threshold` is known.
        caution: Standard errors by which an accuracy must exceed the threshold.
        chosen: The number of the chosen sample of a space; None: all at `chosen_level`.
    """

    name: str
    scheme: str
    recovery: str
    objective_name: str
    objective_unit: str
    maximize: bool
    threshold: float
    dense_accuracy: float
    dense_objective: float | None
    samples: tuple[Sample, ...]
    accuracy_curve: Curve | None
    objective_curve: Curve | None
    level_accuracy: float
    chosen_level: float
    comparison: tuple[Sample, ...] = ()
    budget: float | None = None
    caution: float = 0.0
    chosen: int | None = None

    @property
    def chosen_words(self) -> str:
        """The choice in a space, in words; "" for a search of a level."""
        return next((one.candidate for one in self.samples if one.number == self.chosen), "")

    def is_chosen(self, sample: Sample) -> bool:
        """Return whether the sample is, or belongs to, the choice."""
        if self.chosen is None:
            return sample.level == self.chosen_level
        return sample.number == self.chosen

    def is_safe(self, sample: Sample) -> bool:
        """Return whether a sample's accuracy is above the threshold, allowing for noise."""
        if sample.accuracy is None:
            return False
        return sample.accuracy - self.caution * (sample.standard_error or 0.0) >= self.threshold

    @property
    def chosen_objective(self) -> float | None:
        """The objective of the choice, as measured last; None if not measured."""
        found = (one.objective for one in reversed(self.samples) if self.is_chosen(one))
        return next((one for one in found if one is not None), None)

    @property
    def why_unchanged(self) -> str:
        """Why no level above 0 was chosen, as a sentence; "" if one was, or for a space."""
        if self.chosen is not None or self.chosen_level > 0:
            return ""
        tried = [one for one in self.samples if one.level > 0]
        within = [
            one for one in tried if one.accuracy is not None and one.accuracy >= self.threshold
        ]
        if any(map(self.is_safe, tried)):
            why = f"no level that was judged within the budget improved {self.objective_name}"
        elif within:
            why = (
                f"level {max(one.level for one in within):.4g} measured within the budget, but "
                f"nearer to its end than {self.caution:g} standard errors (more validation "
                "examples make those smaller; a 'margin' of your own takes their place)"
            )
        else:
            best = max((one.accuracy for one in tried if one.accuracy is not None), default=None)
            reached = "" if best is None else f" (the best reached {best:.4f})"
            why = (
                f"no level kept the metric at {self.threshold:.4f}{reached}; a larger eps or a "
                "longer recovery may let one"
            )
        return f"{why}, so this study left the model as it was."


@dataclass(frozen=True, kw_only=True)
class LayerRow:
    """One layer before and after, as a row of Condensa's Table 3.

    Attributes:
        module: Name of the module, such as "layer1.0.conv1".
        kind: Its class, such as "Conv2d".
        kernel: Its kernel as text, such as "3 x 3"; "" if it has none.
        in_channels_before: Input channels of the dense layer.
        in_channels_after: Input channels of the compressed layer; 0 if it was removed.
        channels_before: Output channels of the dense layer.
        channels_after: Output channels of the compressed layer; 0 if it was removed.
        macs_before: Multiply-accumulates of one example, dense.
        macs_after: The same, compressed.
        nonzero_before: Non-zero parameter elements, dense.
        nonzero_after: The same, compressed.
        time_before_ms: Time of the dense layer in milliseconds; None if not timed.
        time_after_ms: The same, compressed.
    """

    module: str
    kind: str
    kernel: str
    in_channels_before: int
    in_channels_after: int
    channels_before: int
    channels_after: int
    macs_before: int
    macs_after: int
    nonzero_before: int
    nonzero_after: int
    time_before_ms: float | None
    time_after_ms: float | None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything in the report of one run.

    Attributes:
        title: What was compressed, in a few words.
        created: When, in ISO 8601 with the offset from UTC.
        metric: Name of the metric in `accuracy`, such as "accuracy".
        runtime: Where latency and throughput were measured, such as "onnxruntime".
        machine: Facts about the machine; see `nncfx.evidence.machine.machine_facts`.
        versions: Relevant versions; see `nncfx.evidence.machine.version_facts`.
        dense: The original model.
        compressed: The compressed model.
        studies: The searches, in the order in which they ran.
        layers: The layers, in execution order.
        max_thinning_error: Largest relative difference of the outputs of the masked and the
            thinned model on the same input; None if nothing was thinned.
        files: The written files: a few words, then the path.
        notes: Sentences that the reader must know.
        file_accuracy: The metric of the compressed model as read back from its file; None if none
            was written.
        command: The command or script of the run; "" if unknown.
        judgement: The loss on held-out data; None in evidence of earlier versions, whose
            accuracies may be from the data that chose.
        batch: Examples of one timed call; None if unknown.
        threads: CPU threads of one timed call; None if the runtime chose, or if unknown.
        operations: The operations of the compressed model; empty if it was not traced.
        weights: The weights of its layers; empty if they were not inspected.
        exported: The measurements of the exported file; None if none was written.
        state: "ended", or what an unfinished run is doing, in words.
    """

    title: str
    created: str
    metric: str
    runtime: str
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    dense: ModelFacts
    compressed: ModelFacts
    studies: tuple[StudyEvidence, ...]
    layers: tuple[LayerRow, ...]
    max_thinning_error: float | None
    files: Mapping[str, str]
    notes: tuple[str, ...]
    file_accuracy: float | None = None
    command: str = ""
    judgement: Judgement | None = None
    batch: int | None = None
    threads: int | None = None
    operations: tuple[OperationFacts, ...] = ()
    weights: tuple[WeightFacts, ...] = ()
    exported: ExportedFile | None = None
    state: str = "ended"

    def to_json(self) -> str:
        """Return the evidence as strict, indented JSON with its format and version."""
        body = {"format": EVIDENCE_FORMAT, "version": EVIDENCE_VERSION, **encode(self)}
        return json.dumps(body, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Evidence":
        """Return the evidence that `to_json` wrote as `text`.

        Raises:
            StorageError: The text is not JSON, has another format or version, or a value in it is
                missing, unknown or of another type; names its JSON path.
        """
        body = load_object(text, "evidence")
        kind, version = body.pop("format", None), body.pop("version", None)
        if kind != EVIDENCE_FORMAT:
            raise StorageError(
                f"$.format is {kind!r:.60}; evidence has {EVIDENCE_FORMAT!r}, so this is a file "
                "of another kind. Give the evidence file of a run."
            )
        if version != EVIDENCE_VERSION:
            raise StorageError(
                f"$.version is {version!r:.60}; this nncfx reads version {EVIDENCE_VERSION}. "
                "Use the nncfx that wrote the file, or run again."
            )
        try:
            return decode(cls, body, finite=False)
        except ArgumentError as error:
            raise StorageError(f"The evidence contradicts itself. {error}") from error

    @staticmethod
    def check_place(path: Path) -> None:
        """Refuse to replace a file at `path` that is not an evidence file.

        Raises:
            StorageError: the file cannot be read, or is of another kind.
        """
        beginning = f'{{\n "format": "{EVIDENCE_FORMAT}"'
        if path.exists() and not read_text(path).startswith(beginning):
            raise StorageError(
                f"'{path}' is not the evidence of a run, and would be overwritten. Use another "
                "folder, or move the file away."
            )

    def write(self, path: str | Path) -> Path:
        """Write the evidence to `path`, completely or not at all, and return the path.

        Raises:
            StorageError: The path cannot be written.
        """
        return write_text(path, self.to_json())

    @classmethod
    def read(cls, path: str | Path) -> "Evidence":
        """Return the evidence in the file at `path`.

        Raises:
            StorageError: The file cannot be read, or `from_json` rejects it.
        """
        return cls.from_json(read_text(path))
