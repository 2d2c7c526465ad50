"""Metrics of a model on labelled data, in which accuracy budgets are measured."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import torch

from nncfx.errors import ArgumentError, NNCFXError, error_text, machine_fault
from nncfx.objectives.number import one_number
from nncfx.tracing import run
from nncfx.tracing.calls.devices import device_of, on_device

Metric: TypeAlias = Callable[[torch.nn.Module, Iterable[Any]], float]
"""Maps a model and an iterable of `(inputs, targets)` to a number; higher is better."""

# torch's cross-entropy excludes these targets from the mean: padding, and unlabelled pixels
_IGNORED: Final = -100


def accuracy(model: torch.nn.Module, loader: Iterable[Any]) -> float:
    """Return the fraction of targets that `model` classifies correctly (top-1), in [0, 1].

    The model is switched to eval mode and back. Outputs are scores of shape `n x classes`, of at
    least two classes, and targets class numbers of shape `n`; or, with a class for every position,
    `n x classes x ...` and `n x ...`. Targets of -100, which torch's cross-entropy ignores, are
    left out. If an output has `logits`, like those of transformers, these are the scores; their
    classes can also be last, as for tokens.

    Returns:
        The fraction; NaN if the scores of a counted target contain NaN.

    Raises:
        ArgumentError: the loader has no counted target, the outputs are not scores of the targets,
            or a target is not a class.
    """
    right, total = 0.0, 0
    for batch in loader:
        right += float(right_answers(model, batch).sum())
        total += int(counted(batch[1]).sum())
    if total == 0:
        raise ArgumentError(
            f"The loader gave no target that counts, as {_IGNORED} does not, so there is no "
            "accuracy. A generator is used up after one pass: pass a list or a DataLoader."
        )
    return right / total


def right_answers(model: torch.nn.Module, batch: tuple[Any, Any]) -> torch.Tensor:
    """Return which targets of a batch `model` classifies correctly; see `accuracy`.

    Returns:
        Float64 of the targets' shape, on the CPU: 1 for correct, 0 for wrong and for targets that
        do not count, NaN if a score is NaN.

    Raises:
        ArgumentError: the outputs are not scores of the targets, or a target is not a class.
    """
    inputs, targets = batch
    device = device_of(model)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            scores = _class_scores(run(model, on_device(device, inputs)), targets)
            is_right = (scores.argmax(dim=1) == targets.to(device)).cpu().to(torch.float64)
            is_lost = scores.isnan().any(dim=1).cpu() & counted(targets)
            answers: torch.Tensor = is_right.masked_fill(is_lost, math.nan)
            return answers
    finally:
        model.train(was_training)


def counted(targets: torch.Tensor) -> torch.Tensor:
    """Return which targets count, bool, on the CPU: losses ignore those of -100."""
    return (targets != _IGNORED).cpu()


def metric_name(metric: Metric) -> str:
    """Return the name of a metric in reports and messages."""
    # A partial or a callable object has no __name__, so its class is used.
    return getattr(metric, "__name__", type(metric).__name__)


def metric_value(metric: Metric, model: torch.nn.Module, loader: Iterable[Any]) -> float:
    """Return the metric of `model` as a plain float, which may be NaN or infinite.

    Grad mode and `requires_grad` flags are restored.

    Raises:
        ArgumentError: the metric raised an error, returned something other than a number, or
            changed the dtype of the model.

    >>> metric_value(lambda model, loader: torch.tensor([0.5]), torch.nn.Identity(), [])
    0.5
    """
    types = {name: one.dtype for name, one in model.named_parameters()}
    try:
        with _gradients_as_before(model):
            value = metric(model, loader)
    except NNCFXError:
        raise
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ArgumentError(
            f"The metric '{metric_name(metric)}' cannot judge {type(model).__name__}: "
            f"{error_text(error)}"
        ) from error
    for name, one in model.named_parameters():
        if one.dtype != types.get(name, one.dtype):
            raise ArgumentError(
                f"The metric '{metric_name(metric)}' left '{name}' in {one.dtype}; it was in "
                f"{types[name]}. A metric judges the model and changes nothing: convert a copy, "
                "or use torch.autocast."
            )
    try:
        return one_number(value)
    except ValueError as error:
        raise ArgumentError(
            f"The metric '{metric_name(metric)}' returned {value!r}; it must return one number, "
            "higher for a better model."
        ) from error


@contextmanager
def _gradients_as_before(model: torch.nn.Module) -> Iterator[None]:
    """Restore grad mode and `requires_grad` flags that evaluation scripts change."""
    flags = [(one, one.requires_grad) for one in model.parameters()]
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled()):
            yield
    finally:
        for parameter, took_gradients in flags:
            if parameter.requires_grad != took_gradients:
                parameter.requires_grad = took_gradients


def finite_metric(
    metric: Metric, model: torch.nn.Module, loader: Iterable[Any], which: str
) -> float:
    """Return the metric of `model`; `which` names the model in messages.

    Raises:
        ArgumentError: as `metric_value`, or the metric is not finite, or changed the weights.
    """
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    value = metric_value(metric, model, loader)
    for name, one in model.named_parameters():
        known = before.get(name)
        # a metric can leave the model on another device
        if known is not None and not torch.equal(known, one.to(known.device)):
            raise ArgumentError(
                f"The metric '{metric_name(metric)}' changed the values of '{name}', so its "
                "numbers are not all of one model. A metric judges the model and changes "
                "nothing: let it change a copy."
            )
    if not math.isfinite(value):
        raise ArgumentError(
            f"The metric '{metric_name(metric)}' of the {which} model is {value}, and no loss "
            "can be computed from that. Fix the metric or the model."
        )
    return value


def _class_scores(output: object, targets: object) -> torch.Tensor:
    """Return the scores in an output, classes second; refuse shapes that only match broadcast."""
    scores = getattr(output, "logits", output)
    advice = "Pass a metric of your own: metric=lambda model, loader: ... (higher is better)."
    if not isinstance(scores, torch.Tensor) or not isinstance(targets, torch.Tensor):
        what = "output" if not isinstance(scores, torch.Tensor) else "target"
        kind = scores if what == "output" else targets
        raise ArgumentError(
            f"Accuracy needs tensors, and the {what} is a {type(kind).__name__}. {advice}"
        )
    if scores is not output and scores.dim() > 1 and scores.shape[:-1] == targets.shape:
        scores = scores.movedim(-1, 1)
    if scores.dim() < 2 or scores.shape[:1] + scores.shape[2:] != targets.shape:  # noqa: PLR2004
        raise ArgumentError(
            f"Accuracy needs scores of shape n x classes and n class numbers, and the shapes are "
            f"{tuple(scores.shape)} and {tuple(targets.shape)}. {advice}"
        )
    if scores.shape[1] == 1:
        raise ArgumentError(
            f"Accuracy needs a score for each class, and the output of shape "
            f"{tuple(scores.shape)} has one: from where on it means class 1 depends on whether it "
            f"is a logit or a probability. {advice}"
        )
    numbers = targets.long()
    is_class = (numbers == targets) & (numbers >= 0) & (numbers < scores.shape[1])
    others = targets[~is_class & (targets != _IGNORED)]
    if others.numel():
        raise ArgumentError(
            f"Accuracy needs targets of 0 to {scores.shape[1] - 1}, one for each class of the "
            f"output, and {_IGNORED} where none counts; one is {others[0].item()}. Number the "
            f"classes from 0, and write {_IGNORED} for what the loss ignores. {advice}"
        )
    return scores
