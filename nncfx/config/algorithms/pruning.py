"""The configs of the algorithms that remove whole channels."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, TypeAlias

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section

__all__ = [
    "BranchPruningConfig",
    "Budget",
    "ChannelPruningConfig",
    "ChannelPruningParams",
    "FilterPruningConfig",
    "FilterPruningParams",
    "HeadPruningConfig",
    "NeuronPruningConfig",
    "PruningConfig",
    "PruningParams",
    "StructurePruningConfig",
]

Budget: TypeAlias = Literal["groups", "macs", "parameters", "latency"]
"""Of what a level is a fraction: channel groups, multiply-accumulates, parameters, or the latency
that a table predicts."""

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
"""How groups are scored: by weights that produce them, by norms' scales, by activations."""

_OF_DATA = frozenset({"APoZ", "HRank", "mean_activation"})
_OF_GROUPS = _OF_DATA | {"batch_norm_scale"}
_NO_GRADIENTS = (
    "gradients of a loss are needed, which a config does not have. Score the groups by "
    "nncfx.schemes.{} and thin the model, or use 'L2'"
)
_NO_LEGR = "learned global ranking (LeGR) is not built. Use 'unweighted_ranking'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningParams(Section):
    """When which pruning level holds, and how what may go is scored.

    Source: NNCF 2.19, "Filter pruning".
    """

    schedule: Literal["exponential", "exponential_with_bias", "baseline"] = option(
        "exponential",
        "how the level goes from pruning_init to the target",
    )
    pruning_target: float | None = option(
        None,
        "the fraction of filters, heads or neurons that is removed at the end, 0.5 if no target "
        "is given",
        limits=LEVEL,
    )
    pruning_flops_target: float | None = option(
        None,
        "the fraction of multiply-accumulates that is removed at the end",
        limits=LEVEL,
    )
    pruning_parameters_target: float | None = option(
        None,
        "the fraction of the model's parameters that is removed at the end (ours, not NNCF's)",
        limits=LEVEL,
    )
    pruning_latency_target: float | None = option(
        None,
        "the fraction of the latency that 'latency_table' predicts which is removed at the end "
        "(ours)",
        limits=LEVEL,
    )
    latency_table: str | None = option(
        None,
        "the file of measured modules that 'pruning_latency_target' reads (ours)",
    )
    num_init_steps: int = option(
        0,
        "epochs of training without pruning at the start",
        limits=Limits(minimum=0),
    )
    pruning_steps: int = option(
        100,
        "epochs from the first pruning to the target",
        limits=Limits(minimum=1),
    )
    filter_importance: Importance = option(  # noqa: RUF009 (option makes a field)
        "L2",
        "the score of a group: of the weights that produce it, of the norms behind it, or of what "
        "the layers that read it are given",
        refused={
            "Taylor": _NO_GRADIENTS.format("taylor_scores"),
            "Fisher": _NO_GRADIENTS.format("fisher_scores"),
        },
    )
    importance_samples: int = option(
        256,
        "how many examples of calibration_batches mean_activation, APoZ and HRank see",
        limits=Limits(minimum=1),
    )
    prune_batch_norms: bool = option(
        default=True,
        doc="whether the norm layers after a removed channel are zeroed as well",
    )
    form: Literal["class", "auto"] = option(
        "class",
        "whether channels stay whose number stands in the model's own code, so that thinning "
        "keeps the class of every module, or go, so that it makes graph modules of some (ours)",
    )

    @property
    def needs_data(self) -> bool:
        """Whether groups are scored by activations."""
        return self.filter_importance in _OF_DATA

    @property
    def target_key(self) -> str:
        """Return the key of the target that is given, `pruning_target` if none is."""
        given = (key for key in _BUDGETS if getattr(self, key) is not None)
        return next(given, "pruning_target")

    @property
    def budget(self) -> Budget:
        """Return of what the level is a fraction."""
        return _BUDGETS[self.target_key]

    @property
    def target(self) -> float:
        """Return the level at the end, a fraction of the budget."""
        default = 0.5
        given: float | None = getattr(self, self.target_key)
        return default if given is None else given

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of several targets at once, and of a table without its target."""
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
                problem=f"stands beside '{first}'; a schedule has one target. Keep one of the "
                "two.",
            )


_BUDGETS: Mapping[str, Budget] = {
    "pruning_target": "groups",
    "pruning_flops_target": "macs",
    "pruning_parameters_target": "parameters",
    "pruning_latency_target": "latency",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruningParams(PruningParams):
    """When which pruning level holds, and which channel groups go first.

    Source: NNCF 2.19, "Filter pruning".
    """

    all_weights: bool = option(
        default=False,
        doc="whether all groups stand in one ranking, or each layer loses the same fraction",
    )
    constrained: bool = option(
        default=True,
        doc="whether all layers that share channels lose the same; false: each chooses its own",
    )
    pruning_side: Literal["input", "output"] = option(
        "input",
        "who chooses where 'constrained' is false: layers what they read, or what they produce",
    )
    living_norms: bool = option(
        default=False,
        doc="whether channels may go that layer norms average over, as a transformer's residual "
        "stream: norms then see the living ones only, in training as in the thin model (ours)",
    )
    align: int | None = option(
        None,
        "the number of which kept channel counts shall be multiples (ours; NNCF fixes 8); where "
        "none is given 16, as CPUs compute them best, or 4 where 16 would keep too many. Counts "
        "are rounded up, so that never more goes than the target",
        limits=Limits(minimum=1),
    )
    align_down: bool = option(
        default=False,
        doc="whether counts are rounded down to what 'align' allows, so that more may go than "
        "the target (ours)",
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of a side, a score and a latency that have no say as well."""
        yield from super().rules()
        if not self.constrained and self.pruning_latency_target is not None:
            yield Fault(
                path="pruning_latency_target",
                problem="is of widths that all layers share, and where 'constrained' is false "
                "each has its own. Use 'pruning_flops_target', or set 'constrained' to true.",
            )
        if not self.constrained and self.living_norms:
            yield Fault(
                path="living_norms",
                problem="is of channels that all layers lose together, and where 'constrained' is "
                "false each chooses its own. Leave it out, or set 'constrained' to true.",
            )
        if self.constrained and self.pruning_side != "input":
            yield Fault(
                path="pruning_side",
                problem="has no say where 'constrained' is true: both sides lose the same. Leave "
                "it out, or set 'constrained' to false.",
            )
        if not self.constrained and self.filter_importance in _OF_GROUPS:
            yield Fault(
                path="filter_importance",
                problem=f"'{self.filter_importance}' scores channels, and where 'constrained' is "
                "false layers choose by their own weights. Use 'L2', or set 'constrained' to "
                "true.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPruningParams(ChannelPruningParams):
    """The parameters of channel pruning, and which convolutions are spared."""

    refused: ClassVar[Mapping[str, str]] = {
        "legr_params": _NO_LEGR,
        "load_ranking_coeffs_path": _NO_LEGR,
        "save_ranking_coeffs_path": _NO_LEGR,
    }

    interlayer_ranking_type: Literal["unweighted_ranking"] = option(
        "unweighted_ranking",
        "how filters of different layers compare",
        refused={"learned_ranking": _NO_LEGR},
    )
    prune_first_conv: bool = option(
        default=False,
        doc="whether convolutions that see the model's input first may lose filters",
    )
    prune_downsample_convs: bool = option(
        default=False,
        doc="whether convolutions with a stride above 1 may lose filters",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruningConfig(InitializedAlgorithmConfig):
    """The keys of every algorithm that zeroes whole parts of a model."""

    pruning_init: float = option(
        0.0,
        "the level from the start; one above the target falls to it in the first epoch",
        limits=LEVEL,
    )
    params: PruningParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        PruningParams(),
        "when which level holds, and what goes first",
    )

    @property
    @override
    def calibration_samples(self) -> int:
        return self.params.importance_samples if self.params.needs_data else 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruningConfig(PruningConfig):
    """The keys of every algorithm that zeroes channel groups."""

    params: ChannelPruningParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        ChannelPruningParams(),
        "when which level holds, and which groups go first",
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPruningConfig(ChannelPruningConfig):
    """Zero whole filters, with all that hangs on their channels."""

    algorithm: ClassVar[str] = "filter_pruning"
    params: FilterPruningParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        FilterPruningParams(),
        "when which level holds, and which filters go first",
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadPruningConfig(ChannelPruningConfig):
    """Zero whole attention heads (ours, not NNCF's)."""

    algorithm: ClassVar[str] = "head_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronPruningConfig(ChannelPruningConfig):
    """Zero neurons, which are rows of linear layers (ours, not NNCF's)."""

    algorithm: ClassVar[str] = "neuron_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class StructurePruningConfig(ChannelPruningConfig):
    """Zero channel groups of any kind: filters, neurons, heads (ours, not NNCF's)."""

    algorithm: ClassVar[str] = "structure_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchPruningConfig(PruningConfig):
    """Zero whole branches of residual networks: pruning in depth (ours, not NNCF's)."""

    algorithm: ClassVar[str] = "branch_pruning"
    params: PruningParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        PruningParams(),
        "when which level, a fraction of the branches, holds, and which go first",
    )
