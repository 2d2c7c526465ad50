"""The config of a search: what Condensa's Listing 1 says in Python. Ours, not NNCF's."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.lc import SchemeConfig
from nncfx.config.option import LEVEL, Limits, option, required
from nncfx.config.section import Section

__all__ = ["ADMMRecovery", "DCFineTunedRecovery", "DCRecovery", "LCRecovery", "SearchConfig"]

_COUNT: Final = Limits(minimum=0)
_SOME: Final = Limits(minimum=1)
_ABOVE_ZERO: Final = Limits(above=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DCRecovery(Section):
    """Compress directly, and train nothing: `nncfx.lc.DC`."""

    algorithm: ClassVar[str] = "DC"

    recalibration_batches: int = option(0, "minibatches to re-estimate norms on", limits=_COUNT)
    seed: int = option(0, "seeds torch during recovery")

    @property
    def settings(self) -> dict[str, Any]:
        """The keys with their values, as the recovery of this name takes them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TrainedRecovery(DCRecovery):
    """What recoveries that train have in common."""

    lr: float = option(0.01, "the learning rate at the start", limits=_ABOVE_ZERO)
    lr_end: float | None = option(None, "the one at the end", limits=_ABOVE_ZERO)
    momentum: float | None = option(None, "of Nesterov's SGD, 0.9 if not given", limits=LEVEL)
    weight_decay: float | None = option(None, "of SGD, 0 if not given", limits=_COUNT)
    clip_norm: float | None = option(None, "what gradients are clipped to", limits=_ABOVE_ZERO)
    amp: Literal["bfloat16", "float16"] | None = option(None, "what mixed precision computes in")


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
    lr_multiplier: float = option(0.1, "by which it falls there", limits=_ABOVE_ZERO)
    mb_iterations_per_l: int = option(1000, "minibatches of an L step", limits=_SOME)
    mb_iterations_first_l: int | None = option(None, "those of the first", limits=_SOME)
    mu_init: float = option(1e-3, "the first penalty parameter", limits=_ABOVE_ZERO)
    mu_multiplier: float = option(1.1, "its factor at each iteration", limits=_SOME)
    mu_cap: float = option(1e4, "above which it grows no more", limits=_ABOVE_ZERO)
    multipliers: bool = option(default=True, doc="whether there are Lagrange multipliers")
    resume_folder: str | None = option(None, "where the state of each iteration is kept")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ADMMRecovery(_TrainedRecovery):
    """L-C with a constant penalty, then training with the zeros held: `nncfx.lc.ADMM`."""

    algorithm: ClassVar[str] = "ADMM"

    iterations: int = option(10, "ADMM iterations", limits=_SOME)
    rho: float = option(1e-2, "the penalty parameter", limits=_ABOVE_ZERO)
    mb_iterations: int = option(1000, "minibatches of an iteration", limits=_SOME)
    retraining_epochs: int = option(0, "passes over the data with the zeros held", limits=_COUNT)
    retraining_lr: float | None = option(None, "their rate, lr if not given", limits=_ABOVE_ZERO)
    resume_folder: str | None = option(None, "where the state of each iteration is kept")


_RECOVERIES: Final[Mapping[str, type]] = MappingProxyType(
    {one.algorithm: one for one in (ADMMRecovery, DCRecovery, DCFineTunedRecovery, LCRecovery)},
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchConfig(Section):
    """A search of the level, as `nncfx.Compressor.from_config` runs it.

    Source: Condensa (Joseph et al. 2020), Listing 1.
    """

    objective: Literal[
        "file_size",
        "footprint",
        "latency",
        "macs",
        "parameters",
        "predicted",
        "throughput",
    ] = required("what to improve")
    schemes: tuple[SchemeConfig, ...] = required(
        "what compresses; several are applied in their order",
        single=True,
        limits=Limits(min_items=1),
    )
    optimizer: DCRecovery = option(  # noqa: RUF009 (a frozen default is safe to share)
        DCRecovery(),
        "how accuracy is recovered",
        tagged=lambda: _RECOVERIES,
    )
    eps: float = option(0.02, "how far the metric may fall", limits=_COUNT)
    margin: float = option(0.0, "how much of eps is kept in reserve", limits=_COUNT)
    tolerance: float = option(
        0.01,
        "how closely levels are resolved",
        limits=Limits(above=0, maximum=0.25),
    )
    max_evaluations: int = option(10, "the most evaluations of a stage", limits=_SOME)
    upper: float = option(1.0, "the open upper end of levels", limits=Limits(above=0, maximum=1))
    seed: int = option(0, "seeds the search")
    runtime: str = option("onnxruntime", "where time is measured")
    latency_table: str | None = option(
        None, "the file of measured modules that objective 'predicted' reads"
    )
    folder: str | None = option(None, "where a run is kept, so that it can go on after a kill")
    name: str | None = option(None, "how the report calls this search")
    title: str | None = option(None, "how the report calls the whole")

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of a reserve above the budget, and of a table without its objective."""
        if (self.objective == "predicted") != (self.latency_table is not None):
            yield Fault(
                path="latency_table",
                problem="objective 'predicted' reads this file and no other objective does. Give "
                "both or neither; nncfx.runtimes.LatencyTable.to_json writes such a file.",
            )
        if self.margin > self.eps:
            yield Fault(
                path="margin",
                problem=f"{self.margin} lies above 'eps', which is {self.eps}: a reserve is part "
                "of the budget. Lower it.",
            )
