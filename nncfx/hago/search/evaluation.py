"""The quality of a candidate: evaluates the simulated graph on the calibration data."""

import math
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, SearchError
from nncfx.hago.execution.simulation import SimulatedGraph
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.search.tuners import Bits
from nncfx.hago.strategy.edge_plan import Planner
from nncfx.hago.strategy.strategy import Strategy
from nncfx.objectives.number import one_number
from nncfx.targets import Hardware
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.tensors import tensors_in

_Candidate = TypeVar("_Candidate")

LabelledBatches: TypeAlias = Sequence[tuple[ExampleInputs, Tensor]]
"""Pairs of the model's inputs and the labels: n class numbers."""

Evaluate: TypeAlias = Callable[[nn.Module, LabelledBatches], float]
"""The quality of a model on batches, higher is better. For several processes it must be a
module-level function, so that it can be pickled."""


def labelled(dataset: Iterable[Any]) -> LabelledBatches:
    """Return the batches of `dataset` as a list.

    Raises:
        ArgumentError: there is no batch, or one is not a pair of inputs and labels.
    """
    if not isinstance(dataset, Iterable):
        raise ArgumentError(
            f"The dataset is a {type(dataset).__name__}; it must hold batches, pairs of the "
            "model's inputs and their labels: a list or a DataLoader."
        )
    batches = list(dataset)
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) != 2:  # noqa: PLR2004 (a pair)
            raise ArgumentError(
                f"Batch {number} of the dataset is a {type(batch).__name__}; the search needs "
                "pairs of the model's inputs and their labels. Write (inputs, labels)."
            )
    if not batches:
        raise ArgumentError(
            "The dataset holds no batch, so no candidate can be judged. Give about 128 samples."
        )
    return [(inputs, labels) for inputs, labels in batches]


@torch.no_grad()
def top1_accuracy(model: nn.Module, batches: LabelledBatches) -> float:
    """Return the share of samples whose label has the highest logit, in [0, 1].

    The logits are the model's first output, n x classes; among equals the first class wins.

    Raises:
        ArgumentError: there is no sample, or the numbers of labels and logits of a batch differ.
    """
    right = total = 0
    for number, (inputs, labels) in enumerate(batches):
        logits = tensors_in(run(model, inputs))[0]
        if tuple(labels.shape) != (len(logits),):
            raise ArgumentError(
                f"Batch {number} has labels of shape {tuple(labels.shape)} for logits of shape "
                f"{tuple(logits.shape)}; the accuracy needs one class number for each sample. "
                "Give those, or an `evaluate` of your own."
            )
        right += int((logits.argmax(1) == labels).sum())
        total += len(labels)
    if not total:
        raise ArgumentError("The batches hold no sample, so nothing can be judged. Give some.")
    return right / total


def finite(value: object, what: str, bits: Bits) -> float:
    """Return `value`, the result of a user's function for `bits`, as a finite number.

    Raises:
        SearchError: it is not a finite number.
    """
    try:
        number = one_number(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise SearchError(
            f"The {what} returned {value!r} for bits {bits}, and nothing can be compared "
            "with that. Return a finite number, higher for a better model."
        )
    return number


@dataclass
class Evaluator:
    """Evaluates candidates of one search; pickled into every worker process.

    Attributes:
        graph: The model.
        hardware: The hardware that it is quantized for.
        strategy: Topology and thresholds of all candidates; its bits are replaced.
        batches: The calibration data.
        evaluate: The quality of a model on them.
        fitted: Sets thresholds that suit the bits of a strategy; None keeps those of `strategy`.
    """

    graph: QuantGraph
    hardware: Hardware
    strategy: Strategy
    batches: LabelledBatches
    evaluate: Evaluate
    fitted: Callable[[Strategy], Strategy] | None = None
    _planner: Planner | None = None
    _simulated: SimulatedGraph | None = None

    def __call__(self, bits: Bits) -> float:
        """Return the quality of the graph simulated with `bits`, in float32.

        Raises:
            SearchError: the quality is not a finite number.
        """
        return finite(self.evaluate(self.simulated(bits), self.batches), "evaluation", bits)

    def strategy_of(self, bits: Bits) -> Strategy:
        """Return the strategy of a candidate."""
        strategy = replace(self.strategy, bits=bits)
        return strategy if self.fitted is None else self.fitted(strategy)

    def simulated(self, bits: Bits) -> SimulatedGraph:
        """Return the graph simulated with `bits`; the next call changes it."""
        if self._planner is None:
            self._planner = Planner(self.graph, self.hardware)
        plan = self._planner.plan(self.strategy_of(bits))
        if self._simulated is None:
            self._simulated = SimulatedGraph(self.graph, plan, torch.float32)
        else:
            self._simulated.set_plan(plan)
            self._simulated.restrict_to(None)
        return self._simulated


@contextmanager
def evaluations(
    evaluator: Callable[[_Candidate], float], processes: int
) -> Iterator[Callable[[Sequence[_Candidate]], Iterator[float]]]:
    """Yield a function that yields the results of `evaluator` for candidates, in their order.

    More than one process are spawned, with one thread each, and stay alive until the context ends.
    """
    if processes == 1:
        yield lambda candidates: map(evaluator, candidates)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, _start, (evaluator,)) as pool:
        yield lambda candidates: pool.map(_evaluate, candidates)


_WORKER: list[Callable[[Any], float]] = []
"""The evaluator of a spawned process."""


def _start(evaluator: Callable[[Any], float]) -> None:
    torch.set_num_threads(1)
    _WORKER[:] = [evaluator]


def _evaluate(candidate: object) -> float:
    return _WORKER[0](candidate)
