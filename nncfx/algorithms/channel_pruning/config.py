"""The configs of the algorithms that remove whole channels."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option
from nncfx.config.pruning_schedule import OF_DATA, PruningConfig, PruningParams
from nncfx.config.registry import register_algorithm_config

_OF_GROUPS = OF_DATA | {"batch_norm_scale"}
_NO_LEGR = "learned global ranking (LeGR) is not implemented. Use 'unweighted_ranking'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruningParams(PruningParams):
    """The pruning schedule, and which channel groups are removed first.

    Source: NNCF 2.19, "Filter pruning".
    """

    all_weights: bool = option(
        default=False,
        doc="whether all groups are ranked together; if false, each layer loses the same fraction",
    )
    constrained: bool = option(
        default=True,
        doc="whether all layers that share channels lose the same ones; if false, each layer "
        "chooses its own",
    )
    pruning_side: Literal["input", "output"] = option(
        "input",
        "what a layer chooses if 'constrained' is false: among the channels that it reads "
        "('input') or produces ('output')",
    )
    living_norms: bool = option(
        default=False,
        doc="whether to prune channels that layer norms average over, such as a transformer's "
        "residual stream; norms then see only the remaining channels, in training as in the "
        "thin model (nncfx only)",
    )
    align: int | None = option(
        None,
        "kept channel counts are rounded up to a multiple of it, so that no more than the "
        "target is removed; by default 16, which suits CPUs best, or 4 where 16 would keep too "
        "many (nncfx only; NNCF fixes 8)",
        limits=Limits(minimum=1),
    )
    align_down: bool = option(
        default=False,
        doc="whether kept channel counts are rounded down to a multiple of 'align' instead, so "
        "that more than the target may be removed (nncfx only)",
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the further faults of keys for side, score and latency that have no effect."""
        yield from super().rules()
        if not self.constrained and self.pruning_latency_target is not None:
            yield Fault(
                path="pruning_latency_target",
                problem="applies to widths that all layers share, and where 'constrained' is "
                "false each has its own. Use 'pruning_flops_target', or set 'constrained' to "
                "true.",
            )
        for key in ("group_lasso", "living_norms"):
            if self.constrained or not getattr(self, key):
                continue
            yield Fault(
                path=key,
                problem="applies to channels that all layers lose together, and where "
                "'constrained' is false each chooses its own. Leave it out, or set "
                "'constrained' to true.",
            )
        if self.constrained and self.pruning_side != "input":
            yield Fault(
                path="pruning_side",
                problem="has no effect where 'constrained' is true: both sides lose the same. "
                "Leave it out, or set 'constrained' to false.",
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
        "how filters of different layers are compared",
        refused={"learned_ranking": _NO_LEGR},
    )
    prune_first_conv: bool = option(
        default=False, doc="whether convolutions that read the model's input may lose filters"
    )
    prune_downsample_convs: bool = option(
        default=False, doc="whether convolutions with a stride above 1 may lose filters"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChannelPruningConfig(PruningConfig):
    """The keys of every algorithm that zeroes channel groups."""

    params: ChannelPruningParams = option(
        ChannelPruningParams(), "the schedule of the level, and which groups are removed first"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPruningConfig(ChannelPruningConfig):
    """Zero whole filters, with everything that depends on their channels."""

    algorithm: ClassVar[str] = "filter_pruning"
    params: FilterPruningParams = option(
        FilterPruningParams(), "the schedule of the level, and which filters are removed first"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadPruningConfig(ChannelPruningConfig):
    """Zero whole attention heads (nncfx only)."""

    algorithm: ClassVar[str] = "head_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class NeuronPruningConfig(ChannelPruningConfig):
    """Zero neurons, which are rows of linear layers (nncfx only)."""

    algorithm: ClassVar[str] = "neuron_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class StructurePruningConfig(ChannelPruningConfig):
    """Zero channel groups of any kind: filters, neurons, heads (nncfx only)."""

    algorithm: ClassVar[str] = "structure_pruning"


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class BranchPruningConfig(PruningConfig):
    """Zero whole branches of residual networks: pruning in depth (nncfx only)."""

    algorithm: ClassVar[str] = "branch_pruning"
    params: PruningParams = option(
        PruningParams(),
        "the schedule of the level, a fraction of the branches, and which branches are "
        "removed first",
    )
