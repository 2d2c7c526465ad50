"""The search loop: ask for candidates, evaluate, log, tell."""

import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch

from nncfx.errors import (
    ArgumentError,
    SearchError,
    machine_faults_told,
    require_known,
    require_truths,
)
from nncfx.hago.graph.quant_graph import QuantGraph
from nncfx.hago.rules.topology import Override, quantize_topology
from nncfx.hago.search.bayesian import BayesianTuner
from nncfx.hago.search.evaluation import (
    Evaluate,
    Evaluator,
    LabelledBatches,
    evaluations,
    finite,
    labelled,
    top1_accuracy,
)
from nncfx.hago.search.fitted_weights import FittedWeights
from nncfx.hago.search.log import PathLike, TrialLog, TrialRecord, better_record
from nncfx.hago.search.tuners import (
    BatchedGreedySearchTuner,
    Bits,
    DefaultSettingTuner,
    GreedySearchTuner,
    GreedySquashTuner,
    RandomSearchTuner,
    SimulatedAnnealingTuner,
    Tuner,
)
from nncfx.hago.strategy.choice_space import MIN_BITS, Choices, choice_space, searched_space
from nncfx.hago.strategy.strategy import FEWEST_BITS, Strategy, require_inputs
from nncfx.hago.strategy.thresholds import estimate_thresholds
from nncfx.narration import tracked
from nncfx.targets import Hardware
from nncfx.tracing.calls.tensors import tensors_in

Score: TypeAlias = Callable[[Strategy, float], float]
"""The value to maximise, computed from a strategy and its accuracy."""

TUNERS: Final[Mapping[str, Callable[[Choices], Tuner]]] = MappingProxyType(
    {
        "batched_greedy": BatchedGreedySearchTuner,
        "bayesian": BayesianTuner,
        "default": DefaultSettingTuner,
        "greedy": GreedySearchTuner,
        "greedy_squash": GreedySquashTuner,
        "random": RandomSearchTuner,
        "simulated_annealing": SimulatedAnnealingTuner,
    }
)
"""Searches that only need the choices, by name."""


@dataclass(frozen=True, kw_only=True)
class QuantizeSettings:
    """The settings of a search.

    Attributes:
        thresholds: The method to estimate thresholds, a name in `THRESHOLD_METHODS`.
        fits_weights: Whether thresholds of weights minimise the squared error for their bits,
            instead of being their largest magnitudes.
        min_bits: The fewest bits of an edge, at least 2.
        evaluate: The quality of a model on the data; by default top-1 accuracy.
        score: The value to maximise; by default the quality itself.
        override: Decides on single nodes before the hardware does; see `Override`.
        processes: How many processes evaluate at once, for searches that ask for several
            candidates.
        most_trials: The most trials; None leaves it to the tuner.

    Raises:
        ArgumentError: a number is out of its range.
    """

    thresholds: str = "avg_range"
    fits_weights: bool = False
    min_bits: int = MIN_BITS
    evaluate: Evaluate = top1_accuracy
    score: Score | None = None
    override: Override | None = None
    processes: int = 1
    most_trials: int | None = None

    def __post_init__(self) -> None:
        require_truths(self)
        least = {"min_bits": FEWEST_BITS, "processes": 1, "most_trials": 1}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int) and value >= bound):
                raise ArgumentError(
                    f"{name} is {value!r}, and must be a whole number of at least {bound}. Leave "
                    "it out for the default."
                )


@dataclass(frozen=True)
class SearchSpace:
    """The fixed and variable parts of a search.

    Attributes:
        strategy: With the most bits everywhere.
        choices: The bits to try at each quantized edge.
    """

    strategy: Strategy
    choices: Choices


def search_space(
    graph: QuantGraph, hardware: Hardware, batches: LabelledBatches, settings: QuantizeSettings
) -> SearchSpace:
    """Return the topology, thresholds and choices of bits of a search."""
    topology = quantize_topology(graph, hardware, settings.override)
    choices = choice_space(graph, topology, hardware, settings.min_bits)
    if not choices:
        raise SearchError(
            f"The hardware '{hardware.name}' computes nothing of this model in integers, so there "
            "is nothing to search. Describe its operations with integer descriptors."
        )
    inputs = [one for one, _ in batches]
    thresholds = estimate_thresholds(graph, hardware, inputs, settings.thresholds)
    most = tuple(one[0] for one in choices)
    strategy = Strategy(graph.model_hash, topology, most, thresholds)
    return SearchSpace(strategy, searched_space(graph, topology, choices))


def search_quantize_strategy(
    graph: QuantGraph,
    hardware: Hardware,
    dataset: Iterable[Any],
    *,
    tuner: str | Callable[[Choices], Tuner] = "greedy",
    log: PathLike | None = None,
    settings: QuantizeSettings | None = None,
) -> tuple[Strategy, float]:
    """Return the best strategy found for `graph` on `hardware`, and its simulated accuracy.

    Args:
        graph: From `prepare_graph`.
        hardware: The hardware to quantize for.
        dataset: Pairs of inputs and labels, about 128 samples, for thresholds and accuracy.
        tuner: A name in `TUNERS`, or a function that creates a tuner from the choices.
        log: A file for the trials. If it has trials of this search, the search continues after
            them.
        settings: The settings of the search.

    Raises:
        ArgumentError: the dataset does not contain pairs, the tuner or the estimate is unknown, or
            graph or hardware is something else.
        CompressionError: no descriptor is feasible, or the log is of another model.
        SearchError: the hardware cannot compute any of the model in integers, or the log is of
            another search.
        MachineError: memory or a device failed, or a process was killed; search again to continue
            from the log.
        StorageError: the log is damaged, or is a file of another kind.
    """
    settings = settings or QuantizeSettings()
    require_inputs(graph, hardware)
    batches = labelled(dataset)
    space = search_space(graph, hardware, batches, settings)
    name, make = _tuner(tuner)
    fitted = FittedWeights(graph) if settings.fits_weights else None
    evaluator = Evaluator(graph, hardware, space.strategy, batches, settings.evaluate, fitted)
    described = {
        "tuner": name,
        "hardware": hardware.name,
        "hardware_hash": hashlib.sha256(hardware.to_json().encode()).hexdigest()[:16],
        "min_bits": settings.min_bits,
        "thresholds": settings.thresholds,
        **({"fits_weights": True} if settings.fits_weights else {}),
        "judged_by": _digest(settings.evaluate, batches),
    }
    trials = TrialLog(log, space.strategy, described)
    best = run_search(make(space.choices), evaluator, trials, settings)
    return best.strategy, best.accuracy


def run_search(
    tuner: Tuner, evaluator: Evaluator, trials: TrialLog, settings: QuantizeSettings
) -> TrialRecord:
    """Ask, evaluate, log and tell until the tuner ends; return the best trial.

    A candidate that was evaluated before is not evaluated again, but counts as another trial.

    Raises:
        SearchError: the log is of another search, or the tuner asks for no candidate at all.
    """
    best: TrialRecord | None = None
    known: dict[Bits, float] = {}
    with evaluations(evaluator, settings.processes) as evaluate:
        for candidates in tracked(_batches(tuner, settings.most_trials), "Trials"):
            found = []
            for strategy, accuracy in _judged(candidates, evaluator, evaluate, trials, known):
                score = accuracy
                if settings.score:
                    score = finite(settings.score(strategy, accuracy), "score", strategy.bits)
                found.append(trials.keep(strategy, score, accuracy))
            tuner.tell(candidates, [one.score for one in found])
            best = better_record([*([] if best is None else [best]), *found])
    if best is None:
        raise SearchError("The tuner asked for no candidate. Give one that asks at least once.")
    return best


def _batches(tuner: Tuner, most: int | None) -> Iterator[list[Bits]]:
    """Yield the batches that the tuner asks for, up to `most` candidates in all."""
    left = sys.maxsize if most is None else most
    while left and (candidates := tuner.ask()[:left]):
        left -= len(candidates)
        yield candidates


def _judged(
    candidates: Sequence[Bits],
    evaluator: Evaluator,
    evaluate: Callable[[Sequence[Bits]], Iterator[float]],
    trials: TrialLog,
    known: dict[Bits, float],
) -> Iterator[tuple[Strategy, float]]:
    """Yield each candidate's strategy and accuracy, as soon as they are available."""
    logged = trials.upcoming([evaluator.strategy_of(one) for one in candidates])
    known.update(zip(candidates, logged, strict=False))
    fresh = list(dict.fromkeys(one for one in candidates if one not in known))
    accuracies = zip(fresh, evaluate(fresh), strict=True)
    for bits in candidates:
        while bits not in known:
            with machine_faults_told(
                f"the evaluation of bits {bits}",
                "search again: with a log it continues after its last trial",
            ):
                evaluated, accuracy = next(accuracies)
            known[evaluated] = accuracy
        yield evaluator.strategy_of(bits), known[bits]


def _digest(evaluate: Evaluate, batches: LabelledBatches) -> str:
    """Return a digest of the labels, and of the names of the functions that use them.

    Inputs are reflected in the thresholds.
    """
    digest = hashlib.sha256()
    for tensor in tensors_in([labels for _, labels in batches]):
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}\n".encode())
        digest.update(
            tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        )
    name = getattr(evaluate, "__qualname__", type(evaluate).__qualname__)
    return f"{name} {digest.hexdigest()[:16]}"


def _tuner(tuner: str | Callable[[Choices], Tuner]) -> tuple[str, Callable[[Choices], Tuner]]:
    if not isinstance(tuner, str):
        return getattr(tuner, "__name__", type(tuner).__name__), tuner
    require_known("tuner", tuner, TUNERS, " Or give a function of the choices.")
    return tuner, TUNERS[tuner]
