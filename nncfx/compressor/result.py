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
from nncfx.evidence.formatting import number
from nncfx.runtimes import call_words
from nncfx.search import Candidate, SearchResult, SpaceResult
from nncfx.thinning import ThinRecipe, load_thinned, save_thinned

__all__ = ["CompressionResult"]


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

        A loss beyond the budget is said before all else.
        """
        found, judgement = self.evidence, self.evidence.judgement
        dense, now = found.dense, found.compressed
        lines = []
        if judgement is not None and not judgement.is_inside:
            lines.append(f"OUTSIDE of the budget: {judgement.words(found.metric)}")
        lines.append(f"{found.metric:12} {dense.accuracy:10.4f} -> {now.accuracy:10.4f}")
        if judgement is not None and judgement.is_inside:
            lines.append(f"{'':12} {judgement.words(found.metric)}")
        lines += [
            _line("parameters", dense.parameters, now.parameters),
            _line("MACs", dense.macs, now.macs),
            _line("footprint B", dense.footprint_bytes, now.footprint_bytes),
        ]
        if dense.file_bytes and now.file_bytes:
            lines.append(
                _line("file B", dense.file_bytes, now.file_bytes) + "  (safetensors -> .nncfx)"
            )
        if dense.packed_bytes and now.packed_bytes:
            lines.append(
                _line("same format", dense.packed_bytes, now.packed_bytes) + "  (both .nncfx)"
            )
        if dense.latency_ms and now.latency_ms:
            overlap = _overlap(dense.latency_interval_ms, now.latency_interval_ms)
            call = f"{call_words(found.batch, found.threads)}, {found.runtime}"
            lines.append(
                _line("latency ms", dense.latency_ms, now.latency_ms)
                + f"  ({call}{'; intervals overlap: no clear change' if overlap else ''})"
            )
        return "\n".join(lines)

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
                "'candidate'.",
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


def _overlap(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]


def _line(name: str, before: float, after: float) -> str:
    change = f"{before / after:8.2f}x" if after else "     gone" if before else ""
    return f"{name:12} {number(before):>10} -> {number(after):>10}  {change}".rstrip()
