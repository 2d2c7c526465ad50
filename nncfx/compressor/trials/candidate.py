"""A candidate of a search, and its measurements."""

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast, final

import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.compressor.evaluation.examples import one_example
from nncfx.compressor.trials.side_by_side import NoTimer, Timer
from nncfx.graph.channels import Channels
from nncfx.graph.macs import total_macs
from nncfx.schemes import Scheme, SchemeLike, as_scheme, footprint_bytes
from nncfx.search import Candidate as Point
from nncfx.thinning import ThinRecipe, ThinResult, save_thinned, thin
from nncfx.tracing import ExampleInputs, trace
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.hooks.store import own_parameters


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateModel:
    """A compressed model as a `Subject`, from which objectives get their measurements.

    Attributes:
        model: Runnable, in the working dtype, with pruned channels removed.
        compressed: After the scheme, in the compressed dtype, masked but not thinned.
        thinning: What was removed; None if the scheme prunes no channels.
    """

    model: nn.Module
    compressed: nn.Module
    thinning: ThinResult | None
    timer: Timer
    example_inputs: ExampleInputs

    def footprint_bytes(self) -> float:
        """Return the bytes of the non-zero parameters, in the compressed dtype."""
        return footprint_bytes(self.compressed)

    def macs(self) -> float:
        """Return the multiply-accumulates of one forward of one example."""
        return total_macs(trace(self.model, one_example(self.example_inputs)))

    def parameters(self) -> float:
        """Return the number of parameters, including zeros."""
        return sum(p.numel() for p in own_parameters(self.model))

    def throughput(self) -> float:
        """Return the examples per second on the timer's runtime."""
        return self.timer.throughput(self.model)

    def latency_ms(self) -> float:
        """Return the milliseconds of one call on the example inputs."""
        return self.timer.latency_ms(self.model)

    def file_bytes(self) -> float:
        """Return the bytes of the model as a `.nncfx` file."""
        return packed_bytes(self.model, self.recipes)

    @property
    def recipes(self) -> tuple[ThinRecipe, ...]:
        """How the model was thinned, if it was."""
        return () if self.thinning is None else (self.thinning.recipe,)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateFactory:
    """Builds candidates from compressed weights; holds what all candidates of a run share.

    Attributes:
        dense: The model to compress; never changed.
        scheme: The scheme, bound to the channels of `dense` if it prunes channels.
        timer: Measures time.
        example_inputs: Inputs for thinning, tracing and timing.
    """

    dense: nn.Module
    scheme: Scheme
    timer: Timer
    example_inputs: ExampleInputs

    def uncompressed(self) -> CandidateModel:
        """Return the dense model as a candidate: level 0 of every search."""
        return CandidateModel(
            model=self.dense,
            compressed=self.dense,
            thinning=None,
            timer=self.timer,
            example_inputs=self.example_inputs,
        )

    def candidate(self, compressed: nn.Module) -> CandidateModel:
        """Return the candidate for a compressed copy of the dense model.

        Raises:
            ThinningError: the thinned model would not equal the masked one.
        """
        model = self.decompressed(compressed)
        thinning = None
        if self.scheme.is_structured:
            thinning = thin(model, self.example_inputs)
            model = thinning.model
        return CandidateModel(
            model=model,
            compressed=compressed,
            thinning=thinning,
            timer=self.timer,
            example_inputs=self.example_inputs,
        )

    def decompressed(self, compressed: nn.Module) -> nn.Module:
        """Return a runnable copy of a compressed model, in the dense model's dtypes and shapes."""
        model = copy_of(compressed)
        self.scheme.decompress(model)
        dtypes = {name: parameter.dtype for name, parameter in self.dense.named_parameters()}
        for name, parameter in model.named_parameters():
            parameter.data = parameter.detach().to(dtypes[name])
        return model.eval()

    def with_state(self, state: Mapping[str, torch.Tensor]) -> nn.Module:
        """Return a copy of the dense model with `state`, in the dtypes of `state`.

        Tied parameters stay tied.
        """
        compressed = copy_of(self.dense)
        tensors = {**dict(compressed.named_parameters()), **dict(compressed.named_buffers())}
        for name, tensor in tensors.items():
            if name in state:
                tensor.data = state[name].detach().to(tensor.device, copy=True)
        return compressed


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Factories:
    """Builds the factory of each scheme; shared parts are computed once.

    Attributes:
        dense: The model to compress; never changed.
        scheme: The scheme, or a function from a point of a space to its scheme.
        timer: Measures time.
        example_inputs: Inputs for thinning, tracing and timing.
    """

    dense: nn.Module
    scheme: SchemeLike | Callable[[Point], SchemeLike]
    timer: Timer
    example_inputs: ExampleInputs

    def __call__(self, point: Point) -> CandidateFactory:
        """Return the factory of candidates for the scheme of a point."""
        given = self.scheme
        if not isinstance(given, Scheme):
            given = cast("Callable[[Point], SchemeLike]", given)(point)
        return self.of(given)

    def of(self, given: SchemeLike) -> CandidateFactory:
        """Return the factory of candidates for a scheme."""
        scheme = as_scheme(given)
        if scheme.is_structured:
            scheme = scheme.bind(self.channels)
        return CandidateFactory(
            dense=self.dense, scheme=scheme, timer=self.timer, example_inputs=self.example_inputs
        )

    @functools.cached_property
    def channels(self) -> Channels:
        """The channels of the model."""
        return analyze_channels(self.dense, self.example_inputs)

    def for_workers(self) -> "Factories":
        """Return the same without a timer, for another process."""
        return replace(self, timer=NoTimer())


def packed_bytes(model: nn.Module, recipes: tuple[ThinRecipe, ...] = ()) -> int:
    """Return the bytes of a model as a `.nncfx` file; `recipes` describe its thinning."""
    with tempfile.TemporaryDirectory() as folder:
        return save_thinned(Path(folder) / "model.nncfx", model, recipes).size_bytes
