"""The values that the stages of a compressor's run pass on: prepared, found, rebuilt."""

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
    """The input of a run: a model, data and a budget that fit together.

    Attributes:
        settings: The compressor of this run.
        narrator: Reports progress to the user.
        executor: Runs trials in parallel; None: they run here, one after the other.
        model: The model to compress, a copy.
        dense: The reference of the budget: `model`, or the dense model of an earlier result.
        example_inputs: Inputs for tracing, thinning and timing.
        validation: The data that choose and those that judge.
        judge: Measures the loss of models on them.
        sample_note: A warning about too few examples; "" if there are enough.
        header: The facts that must match for a journal to continue.
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
        """The name of this study in the report."""
        return self.settings.name or self.settings.objective.name

    def path(self, name: str) -> Path | None:
        """Return the path of `name` in the run's folder; None if it has no folder."""
        folder = self.settings.folder
        return None if folder is None else Path(folder) / name


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Found:
    """The choice of a search, and the means to rebuild its candidates.

    Attributes:
        result: The trials, and the choice among them.
        trials: The evaluator of the trials, which keeps their weights.
        factories: Build candidates by their schemes.
    """

    result: SearchResult | SpaceResult
    trials: Trials
    factories: Factories

    @property
    def words(self) -> str:
        """The choice, in words."""
        if isinstance(self.result, SpaceResult):
            return candidate_words(self.result.best.candidate)
        return f"level {self.result.level:.4g}"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Rebuilt:
    """The winner and its judgement.

    Attributes:
        result: The search, with the winner chosen.
        candidate: The compressed model.
        scheme: The scheme that compressed it.
        judgement: Its loss on the data that judge.
        metric: Its metric on those data.
    """

    result: SearchResult | SpaceResult
    candidate: CandidateModel
    scheme: Scheme
    judgement: Judgement
    metric: float
