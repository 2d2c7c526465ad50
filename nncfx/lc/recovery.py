"""The interface of recovery methods: L-C, direct compression, fine-tuning."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor, nn

from nncfx.schemes import SchemeLike


def _silent(_: str) -> None:
    """Ignore progress."""


def _go_on(_: "Sequence[StepRecord]") -> bool:
    """Never stop."""
    return False


@dataclass(frozen=True, kw_only=True, eq=False)
class RecoveryData:
    """The data and the judgement for recovery.

    Attributes:
        train: Minibatches `(inputs, targets)`, iterable repeatedly (a DataLoader or a list, not a
            generator). Inputs are a tensor, a tuple of positional inputs, or a mapping of keyword
            inputs; they are moved to the model's device.
        validate: Judges a model in eval mode; higher is better. Called without gradients.
        criterion: The training loss of `(outputs, targets)`, a scalar tensor.
        progress: Called with a short description of the current work, many times a second; by
            default ignored.
        stop: Called after every step with the records so far; True ends recovery with the best
            result so far. By default recovery never stops early.
    """

    train: Iterable[tuple[Any, Any]]
    validate: Callable[[nn.Module], float]
    criterion: Callable[[Any, Any], Tensor]
    progress: Callable[[str], None] = _silent
    stop: Callable[[Sequence["StepRecord"]], bool] = _go_on


def within(data: RecoveryData, place: str) -> RecoveryData:
    """Return `data` with `place` prepended to its progress messages.

    >>> data = RecoveryData(train=[], validate=id, criterion=id, progress=print)
    >>> within(data, "step 1 of 7").progress("judging")
    step 1 of 7: judging
    """
    return replace(data, progress=lambda text: data.progress(f"{place}: {text}"))


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One step of recovery: an L-C iteration, or an epoch of fine-tuning.

    Attributes:
        step: Counts from 0, which is direct compression without any training.
        metric: Result of `validate` on the compressed model after this step.
        loss: Mean training loss of the step, without penalty; None without training.
        learning_rate: At the start of the step; 0.0 without training.
        mu: Penalty parameter of the step; 0.0 without penalty.
        distance: Euclidean distance between the weights and the compressed weights after the step.
    """

    step: int
    metric: float
    loss: float | None = None
    learning_rate: float = 0.0
    mu: float = 0.0
    distance: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Recovered:
    """A compressed model, the best of all steps by its metric.

    Attributes:
        compressed: Result of `scheme.compress`, in the compressed dtype, in eval mode.
        model: The same after `scheme.decompress`: in the working dtype, runnable, in eval mode.
        metric: Result of `validate` on `model`.
        history: One record per step, in order.
    """

    compressed: nn.Module
    model: nn.Module
    metric: float
    history: tuple[StepRecord, ...]


class Recovery(Protocol):
    """A method that recovers accuracy after compression: from `nncfx.lc`, or the user's own."""

    def recover(
        self, model: nn.Module, scheme: SchemeLike, level: float, data: RecoveryData
    ) -> Recovered:
        """Return a compressed copy of `model` at `level`; `model` itself never changes.

        Raises:
            ArgumentError: the level is out of range, or there are no minibatches.
            CompressionError: the scheme cannot compress the model, or training diverged.
        """
        ...
