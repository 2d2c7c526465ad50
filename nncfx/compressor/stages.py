"""What the stages of a compressor's run hand on: prepared, found, rebuilt."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from torch import nn

from nncfx.compressor.evaluation.judge import Judge
from nncfx.compressor.evaluation.validation_data import Validation
from nncfx.compressor.settings import CompressorSettings
from nncfx.compressor.trials.candidate import CandidateModel, Factories
from nncfx.compressor.trials.trial_runner import Trials
from nncfx.evidence.formatting import candidate_words
from nncfx.evidence.judgement import Judgement
from nncfx.narration import Narrator
from nncfx.schemes import Scheme
from nncfx.search import Executor, JSONValue, SearchResult, SpaceResult
from nncfx.tracing import ExampleInputs


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """What a run begins with: a model, data and a budget that go together.

    Attributes:
        settings: The compressor whose run this is.
        narrator: Tells a person what is happening.
        executor: Runs trials beside each other; None: they run one after the other, here.
        model: What is compressed, a copy.
        dense: What the budget counts from: `model`, or what the result before began with.
        example_inputs: What is traced, thinned and timed.
        validation: The data that choose and those that judge.
        judge: Counts what models lose on them.
        sample_note: What must be known of so few examples; "" where there are enough.
        header: What must be the same for a journal to continue.
    """

    settings: CompressorSettings
    narrator: Narrator
    executor: Executor | None
    model: nn.Module
    dense: nn.Module
    example_inputs: ExampleInputs
    validation: Validation
    judge: Judge
    sample_note: str
    header: Mapping[str, JSONValue]

    @property
    def name(self) -> str:
        """How the report calls this study."""
        return self.settings.name or self.settings.objective.name

    def path(self, name: str) -> Path | None:
        """Return where the run keeps `name`; None where it keeps nothing."""
        folder = self.settings.folder
        return None if folder is None else Path(folder) / name


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """What a search chose, and what makes its candidates again.

    Attributes:
        result: The trials, and the choice among them.
        trials: Evaluated them, and keeps their weights.
        factories: Makes candidates by their schemes.
    """

    result: SearchResult | SpaceResult
    trials: Trials
    factories: Factories

    @property
    def words(self) -> str:
        """What is chosen, as a person reads it."""
        if isinstance(self.result, SpaceResult):
            return candidate_words(self.result.best.candidate)
        return f"level {self.result.level:.4g}"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rebuilt:
    """The winner, and what the judging data say of it.

    Attributes:
        result: The search, with the winner chosen.
        candidate: The compressed model.
        scheme: By which it was compressed.
        judgement: Its loss on the data that judge.
        metric: Its metric on them.
    """

    result: SearchResult | SpaceResult
    candidate: CandidateModel
    scheme: Scheme
    judgement: Judgement
    metric: float
