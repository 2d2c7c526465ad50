"""Reads a task from a JSON config or from a Python file, and loads the code it names."""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, cast, final

import torch
from torch import nn
from torch.nn import functional as F

from nncfx.compressor import Metric, accuracy
from nncfx.compressor.preflight import check_loaders, first_batch
from nncfx.config import Fault, Section
from nncfx.config.faults import config_error
from nncfx.config.option import options_of
from nncfx.errors import ArgumentError, ConfigError
from nncfx.objectives import Objective
from nncfx.tasks.config import ACCURACY, DataSection, ModelSection, TaskConfig
from nncfx.tasks.references import call_reference, load_module, load_reference, reference_problem
from nncfx.tasks.weights import load_weights
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.training.config_inputs import example_inputs_of

Criterion = Callable[[Any, Any], torch.Tensor]

_CODE: Final = ("model", "data", "metric")
_CODE_OF: Final = {"criterion": "train", "objective": "search"}
"""Names of code in a Python file that are keys of a section."""
_LOADERS: Final = ("train", "validation", "test")


@final
@dataclass(frozen=True, kw_only=True)
class Data:
    """The loaders of a task: batches of `(inputs, targets)`, iterable repeatedly."""

    train: Iterable[Any]
    validation: Iterable[Any]
    test: Iterable[Any] | None = None


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A config with the code that it names.

    Attributes:
        config: What to do.
        path: The file of the task; file names in it are relative to its folder.
    """

    config: TaskConfig
    path: Path

    @property
    def kind(self) -> Literal["search", "training", "export"]:
        """The kind of work that takes most time."""
        if self.config.search is not None:
            return "search"
        return "training" if self.config.compression else "export"

    def model(self) -> nn.Module:
        """Return the trained model, in evaluation mode; every call builds a new one.

        Raises:
            ConfigError: the named code does not build a model.
            StorageError: the weights cannot be read, or do not fit.
        """
        section = self.config.model
        made = self._made(section, "model")
        if not isinstance(made, nn.Module):
            raise ConfigError(
                f"model.factory: '{section.factory}' returned a {type(made).__name__}; it must "
                "return a torch.nn.Module."
            )
        if section.weights is not None:
            made = load_weights(made, self.path.parent / section.weights)
        return made.eval()

    @functools.cached_property
    def data(self) -> Data:
        """The loaders.

        Raises:
            ConfigError: there is no section 'data', or the named code does not build loaders.
            ArgumentError: a loader can be read only once, is empty, or does not yield pairs.
        """
        section = self.config.data
        if section is None:
            raise ConfigError(f"'{self.path}' has no section 'data'. Add it.")
        made = self._made(section, "data")
        if isinstance(made, tuple | list) and len(made) in (len(_LOADERS) - 1, len(_LOADERS)):
            made = dict(zip(_LOADERS, made, strict=False))
        unknown = sorted(set(made) - set(_LOADERS)) if isinstance(made, Mapping) else [""]
        if unknown or not isinstance(made, Mapping) or not {"train", "validation"} <= set(made):
            raise ConfigError(
                f"data.factory: '{section.factory}' returned {_told(made)}; it must return the "
                "loaders {'train': ..., 'validation': ...}, with 'test' if there is one; or a "
                "tuple of them in this order."
            )
        given = {name: loader for name, loader in made.items() if loader is not None}
        check_loaders(given)
        for name, loader in given.items():
            first_batch(name, loader)
        return Data(**made)

    @property
    def metric(self) -> Metric:
        """The metric of a model on a loader."""
        if self.config.metric == ACCURACY:
            return accuracy
        return cast("Metric", self._function(self.config.metric, "metric"))

    @property
    def objective(self) -> Objective | None:
        """The objective of the search, if it is the user's own.

        Raises:
            ConfigError: the named object is not an objective.
        """
        search = self.config.search
        if search is None or not search.is_own:
            return None
        found = load_reference(search.objective, self.path.parent, "search.objective")
        if not isinstance(found, Objective):
            raise ConfigError(
                f"search.objective: '{search.objective}' is a {type(found).__name__}, which does "
                "not say whether less or more is better. Write objective = Minimize(function) "
                "or Maximize(function), of nncfx.objectives, where the function takes the model "
                "and returns a number, and name that."
            )
        return found

    @property
    def criterion(self) -> Criterion:
        """The loss of outputs and targets."""
        name = self.config.train.criterion
        if ":" in name:
            return cast("Criterion", self._function(name, "train.criterion"))
        return cast("Criterion", getattr(F, name))

    @functools.cached_property
    def example_inputs(self) -> ExampleInputs:
        """The inputs for tracing: from 'input_info', else the first validation batch."""
        if self.config.input_info:
            return example_inputs_of(self.config.input_info, self.model())
        if self.config.data is None:
            raise ConfigError(
                f"'{self.path}' has no section 'data', and no 'input_info' to make an example of. "
                'Add one of them: "input_info": {"sample_size": [1, 3, 224, 224]}.'
            )
        inputs, _ = first_batch("validation", self.data.validation)
        return cast("ExampleInputs", inputs)

    def _made(self, section: ModelSection | DataSection, key: str) -> Any:  # noqa: ANN401 (anything)
        found = load_reference(section.factory, self.path.parent, f"{key}.factory")
        if isinstance(found, nn.Module) or not callable(found):
            if section.arguments:
                raise ConfigError(
                    f"{key}.arguments: '{section.factory}' is a {type(found).__name__}, not a "
                    "function that takes arguments. Take them out, or name a function."
                )
            return copy_of(found) if isinstance(found, nn.Module) else found
        return call_reference(found, section.factory, f"{key}.factory", section.arguments)

    def _function(self, text: str, key: str) -> object:
        found = load_reference(text, self.path.parent, key)
        if not callable(found):
            raise ConfigError(
                f"{key}: '{text}' is a {type(found).__name__}, which cannot be called. Name a "
                "function."
            )
        return found


def read_task(path: str | Path) -> Task:
    """Return the task that a JSON config, or a Python file, describes.

    A Python file defines the sections as names: `model`, `data`, `metric` and `criterion` are
    functions (or the object itself), `objective` is a `Minimize` or `Maximize` of a function, the
    others are, or return, JSON-like values.

    Raises:
        ConfigError: the file cannot be read, or has faults, all of which are listed.
    """
    path = Path(path)
    if path.suffix == ".py":
        return Task(config=_of_module(load_module(path, "the task"), path), path=path.resolve())
    config = TaskConfig.from_json(path)
    _check_files(config, path)
    return Task(config=config, path=path.resolve())


def _check_files(config: TaskConfig, path: Path) -> None:
    """Refuse a config that names code or weights in missing files; no code is run."""
    named = {"model.factory": config.model.factory, **config.code}
    if config.data is not None:
        named["data.factory"] = config.data.factory
    problems = {key: reference_problem(text, path.parent) for key, text in named.items()}
    weights = path.parent / (config.model.weights or "")
    if not weights.exists():
        problems["model.weights"] = f"there is no file '{weights}'. Check the path."
    faults = [Fault(path=key, problem=text) for key, text in problems.items() if text]
    if faults:
        raise config_error(faults, f"'{path}'")


def _of_module(module: ModuleType, path: Path) -> TaskConfig:
    known = {one.name for one in options_of(TaskConfig)}
    sections: dict[str, Any] = {
        name: _section(vars(module)[name], name)
        for name in vars(module)
        if name in known and name not in _CODE
    }
    sections |= {
        name: f"{path.name}:{name}" for name in _CODE if name in vars(module) and name in known
    }
    for name, section in _CODE_OF.items():
        if name in vars(module):
            given = sections.get(section, {})
            if name in given:
                raise ConfigError(
                    f"'{path}' defines '{name}', and '{section}' says {given[name]!r}. Take one "
                    "of them out."
                )
            if section == "search" and not given:
                raise ConfigError(
                    f"'{path}' defines 'objective', and has no 'search' that would improve it. "
                    "Take it out, or add the section."
                )
            sections[section] = {name: f"{path.name}:{name}", **given}
    if not sections:
        raise ConfigError(
            f"'{path}' has none of the sections of a task: {', '.join(sorted(known))}. Define "
            "functions of these names; nncfx config init task.py writes a file to begin with."
        )
    return TaskConfig.from_dict(sections)


def _section(value: object, name: str) -> object:
    if callable(value) and not isinstance(value, Section):
        try:
            value = value()
        except TypeError as error:
            raise ArgumentError(
                f"'{name}' of a task is a function without arguments that returns the section: "
                f"{error}. Give its parameters defaults."
            ) from error
    return value.to_dict() if isinstance(value, Section) else value


def _told(made: object) -> str:
    if isinstance(made, Mapping):
        return f"a mapping with {sorted(map(str, made))}"
    if isinstance(made, tuple | list):
        return f"a {type(made).__name__} of {len(made)}"
    return f"a {type(made).__name__}"
