"""The config of a search, like Condensa's Listing 1. An addition to NNCF's configs."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option, required
from nncfx.config.scheme import KEYS_OF_SCHEMES, SchemeConfig
from nncfx.config.section import Section
from nncfx.errors import did_you_mean

_COUNT: Final = Limits(minimum=0)
_SOME: Final = Limits(minimum=1)
_ABOVE_ZERO: Final = Limits(above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DCRecovery(Section):
    """Compress directly, and train nothing: `nncfx.lc.DC`."""

    algorithm: ClassVar[str] = "DC"

    recalibration_batches: int = option(
        0, "minibatches on which norms are re-estimated", limits=_COUNT
    )
    seed: int = option(0, "seeds torch during recovery")

    @property
    def settings(self) -> dict[str, Any]:
        """The keys with their values, as arguments of the recovery of this name."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TrainedRecovery(DCRecovery):
    """What recoveries that train have in common."""

    lr: float = option(0.01, "the learning rate at the start", limits=_ABOVE_ZERO)
    lr_end: float | None = option(None, "the learning rate at the end", limits=_ABOVE_ZERO)
    momentum: float | None = option(
        None, "the momentum of Nesterov's SGD, 0.9 if not given", limits=LEVEL
    )
    weight_decay: float | None = option(
        None, "the weight decay of SGD, 0 if not given", limits=_COUNT
    )
    clip_norm: float | None = option(
        None, "the norm to which gradients are clipped", limits=_ABOVE_ZERO
    )
    amp: Literal["bfloat16", "float16"] | None = option(None, "the dtype of mixed precision")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DCFineTunedRecovery(_TrainedRecovery):
    """Compress directly, then train with the zeros held: `nncfx.lc.DCFineTuned`."""

    algorithm: ClassVar[str] = "DCFineTuned"

    epochs: int = option(5, "passes over the training data", limits=_SOME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LCRecovery(_TrainedRecovery):
    """Learn and compress in turn: `nncfx.lc.LC`."""

    algorithm: ClassVar[str] = "LC"

    steps: int = option(30, "L-C iterations", limits=_SOME)
    lr_decay: float = option(1.0, "the factor on lr at each iteration", limits=_ABOVE_ZERO)
    lr_milestones: tuple[int, ...] = option((), "iterations after which lr falls", limits=_COUNT)
    lr_multiplier: float = option(0.1, "the factor of lr at a milestone", limits=_ABOVE_ZERO)
    mb_iterations_per_l: int = option(1000, "minibatches of an L step", limits=_SOME)
    mb_iterations_first_l: int | None = option(
        None, "minibatches of the first L step", limits=_SOME
    )
    mu_init: float = option(1e-3, "the first penalty parameter", limits=_ABOVE_ZERO)
    mu_multiplier: float = option(
        1.1, "the factor of the penalty parameter at each iteration", limits=_SOME
    )
    mu_cap: float = option(1e4, "the largest value of the penalty", limits=_ABOVE_ZERO)
    multipliers: bool = option(default=True, doc="whether to use Lagrange multipliers")
    penalize: Literal["weights", "all"] = option("all", "the parameters that the penalty acts on")
    resume_folder: str | None = option(None, "the folder for the state of each iteration")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ADMMRecovery(_TrainedRecovery):
    """L-C with a constant penalty, then training with the zeros held: `nncfx.lc.ADMM`."""

    algorithm: ClassVar[str] = "ADMM"

    iterations: int = option(10, "ADMM iterations", limits=_SOME)
    rho: float = option(1e-2, "the penalty parameter", limits=_ABOVE_ZERO)
    mb_iterations: int = option(1000, "minibatches of an iteration", limits=_SOME)
    retraining_epochs: int = option(0, "passes over the data with the zeros held", limits=_COUNT)
    retraining_lr: float | None = option(
        None, "the learning rate of these passes, lr if not given", limits=_ABOVE_ZERO
    )
    resume_folder: str | None = option(None, "the folder for the state of each iteration")


_RECOVERIES: Final[Mapping[str, type]] = MappingProxyType(
    {one.algorithm: one for one in (ADMMRecovery, DCRecovery, DCFineTunedRecovery, LCRecovery)}
)


_VALUES: Final = MappingProxyType({"type": "array", "items": {"type": ["number", "string"]}})


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchedScheme(SchemeConfig):
    """A scheme of a search, which may have a level or choices of its own."""

    level: tuple[float, ...] = option(
        (), "the lowest and the highest level, if the scheme has a level of its own", limits=LEVEL
    )
    choices: Mapping[str, list[Any]] | None = option(
        None,
        "keys of the scheme with the values to choose from, such as {'bits': [2, 4, 8]}",
        schema={"type": "object", "additionalProperties": dict(_VALUES)},
    )

    @property
    @override
    def settings(self) -> dict[str, Any]:
        """The given, fixed keys, without the name."""
        given = super().settings
        return {key: one for key, one in given.items() if key not in ("level", "choices")}

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of the scheme, of a range, and of invalid choices."""
        yield from super().rules()
        if self.level and (len(self.level) != 2 or self.level[0] >= self.level[1]):  # noqa: PLR2004 (two ends)
            yield Fault(
                path="level",
                problem=f"{list(self.level)} is not a range: give the lowest and the highest "
                "level, such as [0.3, 0.9].",
            )
        for key, values in (self.choices or {}).items():
            if key not in KEYS_OF_SCHEMES[self.name] or key in self.settings:
                known = ", ".join(sorted(KEYS_OF_SCHEMES[self.name] - set(self.settings)))
                yield Fault(
                    path=f"choices.{key}",
                    problem=f"of '{self.name}' can be chosen: {known or 'nothing'}. Take it out.",
                )
            elif len(values) < 2 or len(set(values)) != len(values):  # noqa: PLR2004 (one is no choice)
                yield Fault(
                    path=f"choices.{key}",
                    problem=f"{values} is not a choice: give at least two different values.",
                )


_OBJECTIVES: Final = [
    *("file_size", "footprint", "latency", "macs", "parameters"),
    *("predicted", "throughput"),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig(Section):
    """A search for a level, or in a space, as `nncfx.Compressor.from_config` runs it.

    It searches a space if a scheme has its own `level` or `choices`.

    Source: Condensa (Joseph et al. 2020), Listing 1.
    """

    objective: str = required(
        "what to improve; for nncfx compress also an objective of your own: 'file.py:name'",
        schema={"type": "string", "examples": _OBJECTIVES},
    )
    schemes: tuple[SearchedScheme, ...] = required(
        "the scheme that compresses; several are applied in order",
        single=True,
        limits=Limits(min_items=1),
    )
    optimizer: DCRecovery = option(
        DCRecovery(), "how accuracy is recovered", tagged=lambda: _RECOVERIES
    )
    eps: float = option(0.02, "how far the metric may fall", limits=_COUNT)
    margin: float | None = option(
        None,
        "how much of eps is kept in reserve; null: as much as the noise requires",
        limits=_COUNT,
    )
    held_out: float = option(
        0.5, "the fraction of validation batches that only judge the winner", limits=LEVEL
    )
    warm_start: bool = option(
        default=False,
        doc="whether each trial begins with the weights of the nearest finished trial",
    )
    stop_hopeless: bool = option(default=False, doc="whether hopeless trials end early")
    tolerance: float = option(
        0.01, "how closely levels are resolved", limits=Limits(above=0, maximum=0.25)
    )
    max_evaluations: int = option(
        10, "the most evaluations of a stage, or in a space", limits=_SOME
    )
    upper: float = option(
        1.0, "the upper end of levels, itself excluded", limits=Limits(above=0, maximum=1)
    )
    seed: int = option(0, "seeds the search")
    runtime: str = option("onnxruntime", "where time is measured")
    threads: int | None = option(
        None, "CPU threads of a timed call; null: the runtime's choice", limits=_SOME
    )
    latency_table: str | None = option(
        None, "the file of measured modules that objective 'predicted' reads"
    )
    folder: str | None = option(
        None, "the folder of the run, from which it can continue after a kill"
    )
    name: str | None = option(None, "the name of this search in the report")
    title: str | None = option(None, "the title of the report")

    @property
    def is_own(self) -> bool:
        """Whether the objective is the user's own code."""
        return ":" in self.objective

    @property
    def is_space(self) -> bool:
        """Whether more than one level is searched."""
        return any(one.level or one.choices for one in self.schemes)

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of an objective, of its table, and of a margin above the budget."""
        if not self.is_own and self.objective not in _OBJECTIVES:
            yield Fault(
                path="objective",
                problem=f"'{self.objective}' is not known here."
                f"{did_you_mean(self.objective, _OBJECTIVES)} Use one of "
                f"{', '.join(_OBJECTIVES)}; or, in the config of nncfx compress, name one of "
                "yours: 'file.py:name'.",
            )
        if (self.objective == "predicted") != (self.latency_table is not None):
            yield Fault(
                path="latency_table",
                problem="objective 'predicted' reads this file and no other objective does. Give "
                "both or neither; nncfx.runtimes.LatencyTable.to_json writes such a file.",
            )
        if self.stop_hopeless and self.is_space:
            yield Fault(
                path="stop_hopeless",
                problem="it compares trials of one scheme, and those of a space have schemes of "
                "their own. Take it out.",
            )
        if self.margin is not None and self.margin > self.eps:
            yield Fault(
                path="margin",
                problem=f"{self.margin} is above 'eps', which is {self.eps}: a reserve is part "
                "of the budget. Lower it.",
            )
