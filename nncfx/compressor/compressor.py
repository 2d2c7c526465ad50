"""The compressor: compresses a trained model within an accuracy budget."""

from dataclasses import dataclass
from typing import Any, Self, final

import torch

from nncfx.compressor.from_config import arguments_from
from nncfx.compressor.result import CompressionResult
from nncfx.compressor.run import compress
from nncfx.compressor.settings import CompressorSettings
from nncfx.config import AnyConfig
from nncfx.errors import ArgumentError
from nncfx.narration import narrated


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Compressor(CompressorSettings):
    """Finds the level that is best for an objective within an accuracy budget, and compresses.

    Each trial compresses a copy of the model to a level with `scheme`, lets `optimizer` recover
    its accuracy, removes the dead channels, and measures the objective. The search first
    finds the highest level that keeps the budget, then the best objective below it.

    The arguments are described in `CompressorSettings`.

    Source: Condensa (Joseph et al., 2019), Listing 1 and Algorithm 1.
    """

    @classmethod
    def from_config(cls, config: AnyConfig, **parts: Any) -> Self:  # noqa: ANN401 (as __init__)
        """Return the compressor that the section `search` of a config describes.

        Args:
            config: With a section `search`: a config, a mapping, or the path of a JSON file.
            parts: Arguments that a file cannot hold: `model`, `trainloader`, `valloader`,
                `criterion` and so on; they override the section.

        Raises:
            ConfigError: `config` has faults or no such section.
            ArgumentError: as for the compressor itself; or its objective names code, which only
                `nncfx compress` runs, and `parts` contains no objective.
        """
        arguments = arguments_from(config, parts.get("example_inputs")) | parts
        if "objective" not in arguments:
            raise ArgumentError(
                "search.objective names code, which only nncfx compress runs. Pass it: "
                "Compressor.from_config(config, objective=Minimize(function), ...)."
            )
        return cls(**arguments)

    def run(self) -> CompressionResult:
        """Search, compress, thin, time, and return the result with its evidence.

        Raises:
            SearchError: there is nothing to search, all trials failed, or the journal in `folder`
                belongs to another run or cannot be written.
            MachineError: memory, disk or a device failed in a trial, which is not recorded; run
                again to continue in `folder`.
            StorageError: evidence.json in `folder` is not an evidence file, or cannot be written.
            ArgumentError: model, data, criterion and metric do not fit together; this is checked
                on the first batches before the search.
            MissingExtraError: the extra of the search or of the runtime is not installed.
            TracingError: the model does not run on the example inputs.
        """
        # Training is impossible inside a caller's inference mode.
        with (
            torch.inference_mode(mode=False),
            torch.enable_grad(),
            narrated(self.name or self.objective.name) as narrator,
        ):
            return compress(self, narrator)
