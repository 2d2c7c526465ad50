"""The config of a task: the sections of a compression config, and sections that name code."""

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final, Literal, Self

from torch.nn import functional
from typing_extensions import override

from nncfx.config import Fault, Limits, NNCFConfig, Section, option, required
from nncfx.errors import ArgumentError, did_you_mean
from nncfx.lc.config import LCConfig
from nncfx.runtimes import runtime_named
from nncfx.schemes.from_config import scheme_faults
from nncfx.targets import target_named

CODE: Final = "'package.module:function', or 'file.py:function' next to the config"
"""How a config refers to Python code."""

ACCURACY: Final = "accuracy"
"""The metric that needs no user code."""

DENSE_FILE: Final = "dense.onnx"
"""The dense model in the folder of a run, against which the exported file is timed."""

_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object"}
_ABOVE_ZERO: Final = Limits(above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSection(Section):
    """The trained model."""

    factory: str = required(f"what returns the model: {CODE}")
    arguments: Mapping[str, Any] | None = option(None, "its keyword arguments", schema=_ARGUMENTS)
    weights: str | None = option(
        None, "a file of weights that the model takes: safetensors, .nncfx or torch's"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSection(Section):
    """The data: loaders of `(inputs, targets)`."""

    factory: str = required(
        "what returns the loaders for training and validation, and, if there is one, for testing: "
        f"{CODE}"
    )
    arguments: Mapping[str, Any] | None = option(None, "its keyword arguments", schema=_ARGUMENTS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainSection(Section):
    """The loss, and how the algorithms of 'compression' are trained: `nncfx.training.Recipe`."""

    criterion: str = option(
        "cross_entropy", f"the loss: a function of torch.nn.functional; or {CODE}"
    )
    epochs: int = option(5, "passes over the training data", limits=Limits(minimum=0))
    lr: float = option(0.01, "the highest learning rate", limits=_ABOVE_ZERO)
    warmup: float = option(
        0.02,
        "the fraction of the steps in which the learning rate rises",
        limits=Limits(minimum=0, below=1),
    )
    momentum: float = option(
        0.9, "the momentum of Nesterov's SGD", limits=Limits(minimum=0, below=1)
    )
    weight_decay: float = option(5e-4, "the weight decay of SGD", limits=Limits(minimum=0))
    task_weight: float = option(
        1.0, "the weight of the task's loss next to a teacher's", limits=Limits(minimum=0)
    )
    precision: Literal["auto", "bfloat16", "float32"] = option(
        "float32", "the precision of forward and backward passes"
    )
    seed: int = option(0, "seeds torch before the training")

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the fault of a loss that torch does not have."""
        yield from super().rules()
        if ":" not in self.criterion and not callable(getattr(functional, self.criterion, None)):
            yield Fault(
                path="criterion",
                problem=f"torch.nn.functional has no '{self.criterion}'."
                f"{did_you_mean(self.criterion, dir(functional))} Name a function in it, or one "
                f"of yours: {CODE}.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSection(Section):
    """The ONNX file, and what becomes of the model on the way there."""

    file: str = option("model.onnx", "its name in the folder of the run, ending in .onnx")
    target: str | None = option(
        None, "the runtime that reads it; null: the one of the quantization, else onnxruntime"
    )
    dynamic_batch: bool = option(default=True, doc="whether the batch axis stays open")
    opset: int | None = option(None, "the operator set; null: the target's", limits=_ABOVE_ZERO)
    quantize: bool = option(
        default=False, doc="whether the result is quantized after training, as the target computes"
    )
    benchmark: bool = option(
        default=True, doc="whether the file is timed against the dense model's"
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of a file and of a target, before hours of training."""
        yield from super().rules()
        file = PurePath(self.file)
        if file.suffix != ".onnx" or file.is_absolute() or ".." in file.parts:
            yield Fault(
                path="file",
                problem=f"'{self.file}' is not the name of an ONNX file in the folder of the "
                "run, where all its files are. Write a name that ends in .onnx, such as "
                "'model.onnx'.",
            )
        elif file == PurePath(DENSE_FILE):
            yield Fault(
                path="file",
                problem=f"'{DENSE_FILE}' is the dense model, against which this one is timed. "
                "Write another name, such as 'model.onnx'.",
            )
        try:
            if self.target is not None:
                target_named(self.target, "opset")
        except ArgumentError as error:
            yield Fault(path="target", problem=str(error))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaskConfig(NNCFConfig):
    """A whole task. It names code, which is run: read it before you run somebody else's.

    `search` finds how far the model can be compressed; `compression` applies algorithms and trains
    with them; `export` alone quantizes and exports.
    """

    model: ModelSection = required(f"the trained model; text stands for its factory: {CODE}")
    data: DataSection | None = option(None, f"the data; text stands for its factory: {CODE}")
    metric: str = option(
        ACCURACY, f"what judges a model on a loader, higher is better: '{ACCURACY}', or {CODE}"
    )
    train: TrainSection = option(TrainSection(), "loss and training")
    export: ExportSection | None = option(None, "the ONNX file; without it, nothing is exported")

    @property
    def base(self) -> NNCFConfig:
        """The part that is a plain compression config."""
        names = [one.name for one in dataclasses.fields(NNCFConfig) if one.name != "user"]
        return NNCFConfig(**{name: getattr(self, name) for name in names})

    @property
    def code(self) -> Mapping[str, str]:
        """The names of Python code, by their keys."""
        found = {"model.factory": self.model.factory, "metric": self.metric}
        found["train.criterion"] = self.train.criterion
        if self.data is not None:
            found["data.factory"] = self.data.factory
        if self.search is not None:
            found["search.objective"] = self.search.objective
        return {key: text for key, text in found.items() if ":" in text}

    @classmethod
    @override
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12)."""
        schema = super().schema()
        properties = schema["$defs"][cls.__name__]["properties"]
        for name in ("model", "data"):
            properties[name] = {
                "description": properties[name]["description"],
                "if": {"type": "string"},
                "else": {"$ref": properties[name]["$ref"]},
            }
        return schema

    @classmethod
    @override
    def _read(cls, data: object, source: str) -> Self:
        if isinstance(data, Mapping):
            data = {
                key: {"factory": value}
                if key in ("model", "data") and isinstance(value, str)
                else value
                for key, value in data.items()
            }
        return super()._read(data, source)

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield faults between sections."""
        yield from super().rules()
        asked = [name for name in ("search", "compression") if getattr(self, name)]
        if len(asked) > 1:
            yield Fault(
                path="compression",
                problem="a search trains by its own 'optimizer', 'compression' by 'train': one "
                "run does one of them. Take one out; 'quantize' in 'export' quantizes what a "
                "search has found.",
            )
        if not asked and self.export is None:
            yield Fault(
                path="",
                problem="there is nothing to do. Add a section 'search', 'compression' or "
                "'export'; nncfx config init writes one to begin with.",
            )
        if self.data is None and (asked or (self.export and self.export.quantize)):
            yield Fault(
                path="data",
                problem=f"the section is missing, and "
                f"{asked[0] if asked else 'quantization'!r} needs examples. Name what returns the "
                f"loaders: {CODE}.",
            )
        if ":" not in self.metric and self.metric != ACCURACY:
            yield Fault(
                path="metric",
                problem=f"'{self.metric}' names no Python object."
                f"{did_you_mean(self.metric, [ACCURACY])} Write '{ACCURACY}', or {CODE}.",
            )
        yield from scheme_faults_in(self)
        if self.accuracy_aware_training is not None:
            yield Fault(
                path="accuracy_aware_training",
                problem="a run trains as 'train' says and would not read this key. Take it out "
                "and write a 'search', which keeps a budget, or train by code: "
                "nncfx.controllers.train_to_accuracy.",
            )
        if self.search is not None:
            if self.metric == ACCURACY and self.search.eps >= 1:
                yield Fault(
                    path="search.eps",
                    problem=f"{self.search.eps:g} of an accuracy, which is a fraction in [0, 1], "
                    "so every model would do. Write 0.02 for two points.",
                )
            yield from self._unread_training()
            yield from _unknown_runtime(self.search.runtime)

    def _unread_training(self) -> Iterator[Fault]:
        for one in dataclasses.fields(TrainSection):
            value = getattr(self.train, one.name)
            if one.name != "criterion" and value != one.default:
                yield Fault(
                    path=f"train.{one.name}",
                    problem="a search trains by 'search.optimizer', and would not read this key. "
                    "Move it there, or take it out.",
                )


def scheme_faults_in(config: NNCFConfig) -> Iterator[Fault]:
    """Yield the faults of schemes in `config`; its own rules cannot use torch."""
    if config.search is not None:
        yield from scheme_faults(config.search.schemes, "search.schemes")
    for number, one in enumerate(config.compression):
        if isinstance(one, LCConfig):
            yield from scheme_faults(one.schemes, f"compression[{number}].schemes")


def _unknown_runtime(name: str) -> Iterator[Fault]:
    try:
        runtime_named(name)
    except ArgumentError as error:
        yield Fault(path="search.runtime", problem=str(error))
