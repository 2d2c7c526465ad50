"""What a compression run returns."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from torch import nn
from typing_extensions import override

from nncfx.compressor.evaluation.metrics import Metric, metric_value
from nncfx.errors import SearchError
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.summary import summary
from nncfx.search import Candidate, SearchResult, SpaceResult
from nncfx.thinning import ThinRecipe, load_thinned, save_thinned


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CompressionResult:
    """A compressed model and the evidence for it.

    Attributes:
        model: The compressed model: runnable, in the working dtype, thinned where channels were
            pruned; of the same class as the dense one, unless a module's code holds a width
            that was pruned: such a module, and be it the model, is an `fx.GraphModule`.
        dense: The model that the run (or the first of several) began with; never changed.
        search: The trials and the choice among them: of a space a `SpaceResult`.
        evidence: Everything that a report shows.
        metric: How accuracy was counted.
        testloader: The data that the evidence's accuracies were measured on: those that judged
            the winner, as `evidence.judgement` says.
        reference: The metric of `dense` on the data that chose; the search's budget counts from
            it.
        recipes: How `model` was thinned, by this run and those before it.
    """

    model: nn.Module
    dense: nn.Module
    search: SearchResult | SpaceResult
    evidence: Evidence
    metric: Metric
    testloader: Iterable[Any]
    reference: float
    recipes: tuple[ThinRecipe, ...] = ()

    @override
    def __str__(self) -> str:
        """Return dense against compressed, a line for each thing that was measured.

        That nothing was chosen, or a loss beyond the budget, is said before all else.
        """
        return summary(self.evidence)

    @property
    def level(self) -> float:
        """The chosen level, in [0, 1).

        Raises:
            SearchError: a space without a dimension "level" was searched.
        """
        chosen = self.candidate.get("level")
        if chosen is None:
            raise SearchError(
                f"The search chose {dict(self.candidate)}, which has no level of its own. Read "
                "'candidate'."
            )
        return float(chosen)

    @property
    def candidate(self) -> Candidate:
        """What was chosen, by dimension: {"level": ...}, or a candidate of the space."""
        if isinstance(self.search, SpaceResult):
            return self.search.best.candidate
        return {"level": self.search.level}

    def save(self, path: str | Path) -> "CompressionResult":
        """Write the model as a `.nncfx` file, read it back, and return the result with that proof.

        `nncfx.thinning.load_thinned(path, dense)` reads the file; `nncfx.storage.load`, too, where
        no module has become a graph.

        What is read back goes into a copy of the dense model and is measured on the test data:
        the evidence then holds the file's size and the accuracy of the file, not of the memory.

        Raises:
            StorageError: the file cannot be written.
        """
        saved = save_thinned(path, self.model, self.recipes)
        restored = load_thinned(path, self.dense)
        evidence = replace(
            self.evidence,
            compressed=replace(
                self.evidence.compressed,
                file_bytes=saved.size_bytes,
                packed_bytes=saved.size_bytes,
            ),
            file_accuracy=metric_value(self.metric, restored, self.testloader),
            files={**self.evidence.files, "compressed model": str(path)},
        )
        return replace(self, evidence=evidence)
