"""Checks before a run begins, so that a mistake costs seconds instead of hours."""

import importlib.util
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from nncfx.compressor.evaluation.metrics import Metric, accuracy
from nncfx.errors import (
    ArgumentError,
    MissingExtraError,
    NNCFXError,
    error_text,
    machine_fault,
    require_known,
)
from nncfx.objectives import Objective
from nncfx.runtimes import RUNTIMES, runtime_named
from nncfx.runtimes.protocol.named_inputs import examples_in
from nncfx.schemes import SchemeLike, as_scheme
from nncfx.schemes.composition import single_schemes
from nncfx.schemes.weight_scheme import WeightScheme
from nncfx.search import Executor, SearchSettings, Space, SpaceSettings
from nncfx.search.workers.executor import check_workers
from nncfx.storage.models.model_state import model_state
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.devices import device_of, on_device
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import tensors_in


def check_model(model: object) -> None:
    """Refuse a model that cannot be copied, traced and compressed as a module.

    Raises:
        ArgumentError: `model` is not a module, is scripted or compiled, has no parameters, or its
            state holds something other than tensors.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"model is a {type(model).__name__}; it must be a trained torch.nn.Module."
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise ArgumentError(
            f"model is a TorchScript module ({type(model).__name__}), whose forward cannot be "
            "followed. Pass the module that was scripted."
        )
    # without torch._dynamo there is no compiled model, and importing it takes a second
    if type(model).__module__.startswith("torch._dynamo"):
        raise ArgumentError(
            "model comes from torch.compile, and every trial would be compiled again. Pass the "
            "module that was compiled, and compile the result."
        )
    if next(model.parameters(), None) is None:
        raise ArgumentError(
            f"model ({type(model).__name__}) has no parameters, so there is nothing to compress."
        )
    for name, value in model_state(model).items():
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(
                f"'{name}' in the state_dict of model is a {type(value).__name__}, and the "
                "weights of trials and of the result are kept as tensors only. Let "
                "get_extra_state return a tensor, or keep that as a buffer."
            )


def check_instances(parts: Mapping[str, object]) -> None:
    """Refuse a wrong objective, scheme, recovery, criterion, metric, runtime or thread count.

    Args:
        parts: the settings of a compressor, by name.

    Raises:
        ArgumentError: one of them is a class instead of an object, not an objective, not a
            function, an unknown runtime, or a number of threads below 1.
    """
    for name in ("objective", "scheme", "optimizer"):
        part = parts[name]
        if isinstance(part, type):
            raise ArgumentError(
                f"{name} is the class {part.__name__}, not an object of it. "
                f"Write {part.__name__}(...)."
            )
    if not isinstance(parts["objective"], Objective):
        raise ArgumentError(
            f"objective is {parts['objective']!r}, which has no direction. Write "
            "Maximize(...) or Minimize(...) around it."
        )
    for name in ("criterion", "metric"):
        if not callable(parts[name]):
            raise ArgumentError(f"{name} is {parts[name]!r}, which cannot be called.")
    require_known("runtime", str(parts["runtime"]), sorted(RUNTIMES))
    threads = parts["threads"]
    if threads is not None and not (isinstance(threads, int) and threads > 0):
        raise ArgumentError(
            f"threads is {threads!r}; a timed call needs at least 1. Leave it out to let the "
            "runtime choose."
        )


def check_scheme(scheme: SchemeLike, model: nn.Module) -> None:
    """Refuse a scheme of weights that finds none of its layers in `model`, alone or composed.

    Raises:
        CompressionError: it finds none.
        GraphError: an entry of its `ignored` matches no module.
    """
    for one in single_schemes(as_scheme(scheme)):
        if isinstance(one, WeightScheme):
            one.require_layers(model)


def check_executor(workers: object, executor: object) -> None:
    """Refuse an invalid number of workers, or both ways to specify what runs trials.

    Raises:
        ArgumentError: `workers` is below 1, `executor` is not an executor, or both are given.
    """
    if check_workers(workers) > 1 and executor is not None:
        raise ArgumentError(
            f"workers is {workers} and executor is {executor!r}, and both say what runs trials. "
            "Give one of them."
        )
    if executor is not None and (isinstance(executor, type) or not isinstance(executor, Executor)):
        raise ArgumentError(
            f"executor is {executor!r}, which cannot run trials. Write LocalExecutor(2) or "
            "RayExecutor(4), both of nncfx.search."
        )


def check_space(
    space: Space | None, settings: SearchSettings | SpaceSettings | None, *, stop_hopeless: bool
) -> None:
    """Refuse settings of the other kind of search.

    Raises:
        ArgumentError: `settings` are for one level but a space is given, or the other way round,
            or early stopping is on with a space.
    """
    wanted = SearchSettings if space is None else SpaceSettings
    if settings is not None and not isinstance(settings, wanted):
        raise ArgumentError(
            f"settings are {type(settings).__name__}, and a search of "
            f"{'one level' if space is None else 'a space'} reads {wanted.__name__}. "
            f"Write settings={wanted.__name__}(...)."
        )
    if space is not None and stop_hopeless:
        raise ArgumentError(
            "stop_hopeless judges a trial by others of the same scheme, and the candidates of a "
            "space have schemes of their own. Leave it out."
        )


def check_extras(runtime: str) -> None:
    """Refuse to start a run that would fail at its end because a package is missing.

    Raises:
        MissingExtraError: the search, the runtime or its exporter is not installed.
    """
    for package in ("gpytorch", "botorch"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "search", "the search of a level")
    chosen = runtime_named(runtime)
    chosen.version()
    for package in () if chosen.reads_modules else ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtraError(package, "export", f"timing a model in {runtime}")


def check_budget(eps: float, margin: float | None, metric: Metric, held_out: float) -> None:
    """Refuse an invalid budget.

    Raises:
        ArgumentError: an argument is not a number; `eps` is negative, not finite, or at least 1
            for an accuracy; `margin` is not in [0, eps]; or `held_out` is not in [0, 1).
    """
    given: dict[str, object] = {"eps": eps, "held_out": held_out, "margin": margin or 0.0}
    for name, value in given.items():
        if not isinstance(value, int | float):  # a journal cannot hold NumPy's other numbers
            raise ArgumentError(
                f"{name} is {value!r}, a {type(value).__name__}; it must be a number: an int or a "
                "float."
            )
    if not 0 <= eps < math.inf:
        raise ArgumentError(
            f"eps is {eps!r}; it is how far the metric may fall and is at least 0. "
            "Write 0.02 for two points of accuracy."
        )
    if metric is accuracy and eps >= 1:
        raise ArgumentError(
            f"eps is {eps!r}, and accuracy is a fraction in [0, 1], so every model would do. "
            "Write 0.02 for two points of accuracy."
        )
    if not 0 <= held_out < 1:
        raise ArgumentError(
            f"held_out is {held_out!r}; it is the share of the validation batches that judge the "
            "winner only, and lies in [0, 1). Write 0.5 for every second batch."
        )
    if margin is not None and not 0 <= margin <= eps:
        raise ArgumentError(
            f"margin is {margin!r}; it is the part of the budget that is kept in reserve "
            f"and lies in [0, eps], with eps = {eps!r}."
        )


def check_loaders(loaders: Mapping[str, Iterable[Any] | None]) -> None:
    """Refuse loaders that can be iterated only once, or not at all; None is skipped.

    Raises:
        ArgumentError: one of the loaders is an iterator or is not iterable.
    """
    for name, loader in loaders.items():
        if isinstance(loader, Iterator):
            raise ArgumentError(
                f"{name} is a {type(loader).__name__}, which is used up after one pass, and every "
                "trial reads it again. Pass a list or a DataLoader."
            )
        if loader is not None and not isinstance(loader, Iterable):
            raise ArgumentError(
                f"{name} is a {type(loader).__name__}; it must be a list or a DataLoader of "
                "(inputs, targets)."
            )


def first_batch(name: str, loader: Iterable[Any]) -> tuple[Any, Any]:
    """Return the first `(inputs, targets)` of `loader` without changing torch's generators.

    Raises:
        ArgumentError: the loader is empty, or its batches are not pairs.
    """
    with torch.random.fork_rng(devices=[]):
        batch = next(iter(loader), None)
    if batch is None:
        raise ArgumentError(f"{name} gives no batch. Give at least one (inputs, targets).")
    if not isinstance(batch, tuple | list) or len(batch) != 2:  # noqa: PLR2004 (a pair)
        is_mapping = isinstance(batch, Mapping)
        wrapped = (
            "(batch, batch['labels']) for batch" if is_mapping else "(inputs, targets) for ..."
        )
        found = (
            f"a {type(batch).__name__} with the keys {', '.join(map(repr, batch))}"
            if is_mapping
            else f"a {type(batch).__name__}"
            + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
        )
        raise ArgumentError(
            f"The first batch of {name} is {found}; a batch is a pair (inputs, targets), where "
            "inputs may be a tensor, a tuple or a dict of keyword inputs. Wrap the loader, for "
            f"instance [{wrapped} in loader], or use a collate_fn."
        )
    inputs, targets = batch
    if not tensors_in(inputs):
        raise ArgumentError(
            f"The inputs of the first batch of {name} are a {type(inputs).__name__} without any "
            "tensor. Give tensors, for instance torch.as_tensor(inputs)."
        )
    return inputs, targets


def check_training_step(
    model: nn.Module, loader: Iterable[Any], criterion: Callable[[Any, Any], torch.Tensor]
) -> None:
    """Refuse a model, data and criterion that do not fit together; `model` is not changed.

    Raises:
        ArgumentError: the model cannot run the first batch of `loader` in train mode, or the loss
            is not a finite number that depends on a parameter.
    """
    inputs, targets = first_batch("trainloader", loader)
    learner = copy_of(model).train()
    inputs, targets = on_device(device_of(learner), (inputs, targets))
    with torch.random.fork_rng(devices=[]):
        outputs = _attempt(
            lambda: run(learner, inputs),
            f"The model does not run in train mode on the first batch of trainloader "
            f"({_shapes(inputs)}{_how_given(inputs)})",
        )
        loss = _attempt(
            lambda: criterion(outputs, targets),
            f"criterion does not take the outputs ({_shapes(outputs)}) and the targets "
            f"({_shapes(targets)}) of the first batch of trainloader",
        )
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        found = f"a tensor of {_shapes(loss)}" if isinstance(loss, torch.Tensor) else repr(loss)
        raise ArgumentError(
            f"criterion returned {found}; a training loss is one number in a tensor. Take the "
            "mean over the batch."
        )
    if not torch.isfinite(loss):
        raise ArgumentError(
            f"The training loss of the first batch of trainloader is {loss.item()}, before "
            "anything is compressed; no step could recover accuracy from it. Look for NaN or "
            "infinity in the batch and in the parameters, and for a division or logarithm of "
            "zero in criterion."
        )
    if not loss.requires_grad:
        raise ArgumentError(
            "The training loss depends on no parameter that requires a gradient, so accuracy "
            "cannot be recovered. Set requires_grad_(True) on what may be trained, return a loss "
            "that was not detached, or take DC(), which trains nothing."
        )


def small_sample_note(
    eps: float, metric: Metric, loader: Iterable[Any], inputs: ExampleInputs
) -> str:
    """Return a warning if one validation example outweighs the budget, else "".

    >>> batch = torch.zeros(16, 2), torch.zeros(16)
    >>> small_sample_note(0.02, accuracy, [batch], batch[0])[:39]
    'valloader has at most 16 examples, so o'
    >>> small_sample_note(0.02, accuracy, [batch] * 100, batch[0])
    ''
    """
    if metric is not accuracy or not isinstance(loader, list | torch.utils.data.DataLoader):
        return ""
    most = len(loader) * examples_in(inputs)
    if eps == 0 or not most or 1 / most <= eps:
        return ""
    return (
        f"valloader has at most {most} examples, so one of them is worth {100 / most:.3g} points "
        f"of accuracy, more than the whole budget of {100 * eps:.3g}: levels can hardly be told "
        "apart."
    )


def reach_note(constrained: int, parameters: int) -> str:
    """Return a warning if a scheme reaches less than half of the parameters, else "".

    >>> reach_note(320, 13925)[:59]
    'the scheme reaches 320 of 13,925 parameters (2.3 %): a leve'
    """
    if 2 * constrained >= parameters:
        return ""
    return (
        f"the scheme reaches {constrained:,} of {parameters:,} parameters "
        f"({100 * constrained / parameters:.1f} %): a level is a share of those, and the others "
        "stay as they are."
    )


def _attempt(function: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 (the model's outputs)
    try:
        return function()
    except NNCFXError:
        raise
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ArgumentError(f"{what}: {error_text(error)}") from error


def _how_given(inputs: ExampleInputs) -> str:
    if not isinstance(inputs, Mapping):
        return ""
    return ", as keyword inputs; a forward that takes the mapping whole wants it in a tuple"


def _shapes(values: object) -> str:
    """Return the shapes and dtypes of the tensors in `values`, such as `"4 x 3 float32"`."""
    texts = [
        f"{' x '.join(map(str, t.shape)) or 'one'} {str(t.dtype).removeprefix('torch.')}"
        for t in tensors_in(values)
    ]
    return ", ".join(texts) or type(values).__name__
