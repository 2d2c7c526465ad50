"""The configs of the algorithms that remove whole channels."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section
from nncfx.config.sparsity import falling

__all__ = ["FilterPruningConfig", "FilterPruningParams"]

_NO_LEGR = "learned global ranking (LeGR) is not built. Use 'unweighted_ranking'"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPruningParams(Section):
    """When which pruning level holds, and which filters go first.

    Source: NNCF 2.19, "Filter pruning".
    """

    refused: ClassVar[Mapping[str, str]] = {
        "legr_params": _NO_LEGR,
        "load_ranking_coeffs_path": _NO_LEGR,
        "save_ranking_coeffs_path": _NO_LEGR,
    }

    schedule: Literal["exponential", "exponential_with_bias", "baseline"] = option(
        "exponential",
        "how the level goes from pruning_init to the target",
    )
    pruning_target: float | None = option(
        None,
        "the fraction of filters that is removed at the end, 0.5 if no target is given",
        limits=LEVEL,
    )
    pruning_flops_target: float | None = option(
        None,
        "the fraction of multiply-accumulates that is removed at the end",
        limits=LEVEL,
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
    filter_importance: Literal["L2", "L1", "geometric_median"] = option(
        "L2",
        "the score of a filter: its norm, or its distance to the other filters",
    )
    interlayer_ranking_type: Literal["unweighted_ranking"] = option(
        "unweighted_ranking",
        "how filters of different layers compare",
        refused={"learned_ranking": _NO_LEGR},
    )
    all_weights: bool = option(
        default=False,
        doc="whether all filters stand in one ranking, or each layer loses the same fraction",
    )
    prune_first_conv: bool = option(
        default=False,
        doc="whether convolutions that see the model's input first may lose filters",
    )
    prune_downsample_convs: bool = option(
        default=False,
        doc="whether convolutions with a stride above 1 may lose filters",
    )
    prune_batch_norms: bool = option(
        default=True,
        doc="whether the norm layers after a removed filter are zeroed as well",
    )
    constrained: bool = option(
        default=True,
        doc="whether all layers that share channels lose the same; false: each chooses its own",
    )
    pruning_side: Literal["input", "output"] = option(
        "input",
        "who chooses where 'constrained' is false: layers what they read, or what they produce",
    )
    align: int | None = option(
        None,
        "the number of which kept filter counts shall be multiples (ours; NNCF fixes 8); where "
        "none is given 16, and below that 4, as CPUs compute them best",
        limits=Limits(minimum=1),
    )

    @property
    def target(self) -> float:
        """Return the level at the end, of filters or of multiply-accumulates."""
        if self.pruning_flops_target is not None:
            return self.pruning_flops_target
        default = 0.5
        return default if self.pruning_target is None else self.pruning_target

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of two targets at once, and of a side that has no say."""
        if self.constrained and self.pruning_side != "input":
            yield Fault(
                path="pruning_side",
                problem="has no say where 'constrained' is true: both sides lose the same. Leave "
                "it out, or set 'constrained' to false.",
            )
        if self.pruning_target is not None and self.pruning_flops_target is not None:
            yield Fault(
                path="pruning_flops_target",
                problem="stands beside 'pruning_target'; a schedule has one target. Keep one of "
                "the two.",
            )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class FilterPruningConfig(InitializedAlgorithmConfig):
    """Zero whole filters, with all that hangs on their channels."""

    algorithm: ClassVar[str] = "filter_pruning"
    pruning_init: float = option(0.0, "the level from the start", limits=LEVEL)
    params: FilterPruningParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        FilterPruningParams(),
        "when which level holds, and which filters go first",
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the fault of a schedule that would lead downwards."""
        yield from falling(
            "pruning_init",
            self.pruning_init,
            "params.pruning_flops_target"
            if self.params.pruning_flops_target is not None
            else "params.pruning_target",
            self.params.target,
        )
