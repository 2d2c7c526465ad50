"""The result of a compression run."""

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
        model: The compressed model: runnable, in the working dtype, with pruned channels removed.
            It has the class of the dense model, except that a module whose code contains a pruned
            width, possibly the model itself, becomes an `fx.GraphModule`.
        dense: The model that the run (or the first of several) started from; never changed.
        search: The trials and the choice among them; for a space a `SpaceResult`.
        evidence: Everything that a report shows.
        metric: The metric of accuracy.
        testloader: The data of the accuracies in the evidence: those that judged the winner, as
            described in `evidence.judgement`.
        reference: The metric of `dense` on the data that chose; the search's budget counts from
            it.
        recipes: How `model` was thinned, by this run and earlier ones.
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
        """Return a comparison of dense and compressed, one line per measured quantity.

        If nothing was chosen, or the loss exceeds the budget, this is stated first.
        """
        return summary(self.evidence)

    @property
    def level(self) -> float:
        """The chosen level, in [0, 1).

        Raises:
            SearchError: the searched space has no dimension "level".
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
        """The chosen candidate, by dimension; {"level": ...} if only the level was searched."""
        if isinstance(self.search, SpaceResult):
            return self.search.best.candidate
        return {"level": self.search.level}

    def save(self, path: str | Path) -> "CompressionResult":
        """Write the model as a `.nncfx` file, read it back, and return the result with that proof.

        Read the file with `nncfx.thinning.load_thinned(path, dense)`, or with `nncfx.storage.load`
        if no module became a graph.

        The file is read into a copy of the dense model and measured on the test data, so the
        evidence holds the size of the file and the accuracy of the file instead of the model in
        memory.

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
