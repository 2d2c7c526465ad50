"""The pruning schedule that the configs of several algorithms share."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, TypeAlias

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig
from nncfx.config.section import Section

Budget: TypeAlias = Literal["groups", "macs", "parameters", "latency"]
"""The quantity of which a level is a fraction: channel groups, multiply-accumulates, parameters,
or the latency predicted by a table."""

Importance: TypeAlias = Literal[
    "L2",
    "L1",
    "max",
    "geometric_median",
    "LAMP",
    "random",
    "batch_norm_scale",
    "mean_activation",
    "APoZ",
    "HRank",
]
"""How groups are scored: by their producers' weights, by scales of norms, by activations."""

OF_DATA = frozenset({"APoZ", "HRank", "mean_activation"})
_NO_GRADIENTS = (
    "gradients of a loss are needed, which a config does not have. Score the groups by "
    "nncfx.schemes.{} and thin the model, or use 'L2'"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningParams(Section):
    """The pruning schedule, and how groups are scored.

    Source: NNCF 2.19, "Filter pruning".
    """

    schedule: Literal["exponential", "exponential_with_bias", "baseline"] = option(
        "exponential", "how the level changes from pruning_init to the target"
    )
    pruning_target: float | None = option(
        None,
        "the fraction of filters, heads or neurons that is removed at the end, 0.5 if no target "
        "is given",
        limits=LEVEL,
    )
    pruning_flops_target: float | None = option(
        None, "the fraction of multiply-accumulates that is removed at the end", limits=LEVEL
    )
    pruning_parameters_target: float | None = option(
        None,
        "the fraction of the model's parameters that is removed at the end (nncfx only)",
        limits=LEVEL,
    )
    pruning_latency_target: float | None = option(
        None,
        "the fraction of the latency, as 'latency_table' predicts it, that is removed at the "
        "end (nncfx only)",
        limits=LEVEL,
    )
    latency_table: str | None = option(
        None, "the file of measured modules that 'pruning_latency_target' reads (nncfx only)"
    )
    num_init_steps: int = option(
        0, "epochs of training without pruning at the start", limits=Limits(minimum=0)
    )
    pruning_steps: int = option(
        100,
        "epochs of the schedule, from the first pruning to the target, both included",
        limits=Limits(minimum=1),
    )
    filter_importance: Importance = option(
        "L2",
        "how a group is scored: by the weights that produce it, by the norms after it, or by "
        "the inputs of the layers that read it",
        refused={
            "Taylor": _NO_GRADIENTS.format("taylor_scores"),
            "Fisher": _NO_GRADIENTS.format("fisher_scores"),
        },
    )
    importance_samples: int = option(
        256,
        "the number of examples of calibration_batches that mean_activation, APoZ and HRank use",
        limits=Limits(minimum=1),
    )
    group_lasso: float = option(
        0.0,
        "the weight of a penalty on the norm of each group that may be removed, until the "
        "target is reached: groups shrink before they are removed (nncfx only)",
        limits=Limits(minimum=0),
    )
    prune_batch_norms: bool = option(
        default=True, doc="whether the norm layers after a removed channel are set to zero as well"
    )
    form: Literal["class", "auto"] = option(
        "class",
        "whether channels are kept if the model's own code contains their number. 'class' keeps "
        "them, so thinning keeps the class of every module; 'auto' prunes them, so thinning "
        "makes graph modules of some (nncfx only)",
    )

    @property
    def needs_data(self) -> bool:
        """Whether groups are scored by activations."""
        return self.filter_importance in OF_DATA

    @property
    def target_key(self) -> str:
        """Return the key of the given target, `pruning_target` by default."""
        given = (key for key in _BUDGETS if getattr(self, key) is not None)
        return next(given, "pruning_target")

    @property
    def budget(self) -> Budget:
        """Return the quantity of which the level is a fraction."""
        return _BUDGETS[self.target_key]

    @property
    def target(self) -> float:
        """Return the final level, a fraction of the budget."""
        default = 0.5
        given: float | None = getattr(self, self.target_key)
        return default if given is None else given

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of several targets, and of a table without its target."""
        if (self.pruning_latency_target is None) != (self.latency_table is None):
            yield Fault(
                path="latency_table",
                problem="'pruning_latency_target' reads this file and nothing else does. Give "
                "both or neither; nncfx.runtimes.LatencyTable.to_json writes such a file.",
            )
        first, *others = [key for key in _BUDGETS if getattr(self, key) is not None] or [""]
        for other in others:
            yield Fault(
                path=other,
                problem=f"is given with '{first}'; a schedule has one target. Keep one of the "
                "two.",
            )


_BUDGETS: Mapping[str, Budget] = {
    "pruning_target": "groups",
    "pruning_flops_target": "macs",
    "pruning_parameters_target": "parameters",
    "pruning_latency_target": "latency",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningConfig(InitializedAlgorithmConfig):
    """The keys of every algorithm that zeroes whole parts of a model."""

    from_data: ClassVar[tuple[str, str]] = (
        "which channels go first",
        "set 'filter_importance' to 'L2'",
    )
    removes_channels: ClassVar[bool] = True

    pruning_init: float = option(
        0.0,
        "the level at the start of training; a level above the target falls to it in the "
        "first epoch",
        limits=LEVEL,
    )
    params: PruningParams = option(
        PruningParams(), "the schedule of the level, and what is removed first"
    )

    @property
    @override
    def calibration_samples(self) -> int:
        return self.params.importance_samples if self.params.needs_data else 0
