"""What a compression run returns."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from torch import nn

from nncfx.compressor.evidence import Evidence
from nncfx.compressor.metrics import Metric
from nncfx.search import SearchResult
from nncfx.storage import load as load_file
from nncfx.storage import save as save_file

__all__ = ["CompressionResult"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CompressionResult:
    """A compressed model and the evidence for it.

    Attributes:
        model: The compressed model: runnable, in the working dtype, thinned where channels were
            pruned; of the same class as the dense one.
        dense: The model that the run (or the first of several) began with; never changed.
        search: The trials and the choice among them.
        evidence: Everything that a report shows.
        metric: How accuracy was counted.
        testloader: The held-out data that the evidence's accuracies were measured on.
        reference: The metric of `dense` on the validation data; budgets count from it.
    """

    model: nn.Module
    dense: nn.Module
    search: SearchResult
    evidence: Evidence
    metric: Metric
    testloader: Iterable[Any]
    reference: float

    @property
    def level(self) -> float:
        """The chosen level, in [0, 1)."""
        return self.search.level

    def save(self, path: str | Path) -> "CompressionResult":
        """Write the model as a `.nncfx` file, read it back, and return the result with that proof.

        What is read back goes into a copy of the dense model and is measured on the test data:
        the evidence then holds the file's size and the accuracy of the file, not of the memory.

        Raises:
            StorageError: the file cannot be written.
        """
        saved = save_file(path, self.model)
        restored = load_file(path, copy.deepcopy(self.dense))
        evidence = replace(
            self.evidence,
            compressed=replace(self.evidence.compressed, file_bytes=saved.size_bytes),
            file_accuracy=self.metric(restored, self.testloader),
            files={**self.evidence.files, "compressed model": str(path)},
        )
        return replace(self, evidence=evidence)
