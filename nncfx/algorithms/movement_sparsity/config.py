"""The config of movement sparsity, in NNCF's grammar."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, Limits, option, required
from nncfx.config.registry import TrainedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import ScopeResolver, Section, resolved_scopes

_EPOCH = Limits(minimum=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MovementSparsityParams(Section):
    """The warm-up of movement sparsity, and the strength of its penalty.

    Source: NNCF 2.19, "Movement sparsity", as for all of this module; `sparsity_target` is the
    "Top-v" of Sanh et al., "Movement pruning", 2020, section 4.1, with their rising level.
    """

    warmup_start_epoch: float = required(
        "the epoch, counted from 0, from which scores are compared with the threshold",
        limits=_EPOCH,
    )
    warmup_end_epoch: float = required(
        "the epoch, counted from 0, from which the masks are frozen", limits=_EPOCH
    )
    importance_regularization_factor: float = required(
        "how strongly the loss pushes scores down at the end of the warm-up", limits=_EPOCH
    )
    enable_structured_masking: bool = option(
        default=True,
        doc="whether, after the warm-up, only channels that are masked as a whole stay masked",
    )
    power: float = option(3.0, "the power of the polynomial warm-up", limits=Limits(above=0))
    init_importance_threshold: float | None = option(
        None, "the threshold at the start of the warm-up; if not given, one that masks 0.1 %"
    )
    final_importance_threshold: float = option(0.0, "the threshold at the end of the warm-up")
    sparsity_target: float | None = option(
        None,
        "the fraction of weights that is masked at the end of the warm-up; the threshold then "
        "follows the scores instead of rising between two numbers",
        limits=LEVEL,
    )
    steps_per_epoch: int | None = option(
        None,
        "optimizer steps in an epoch; if not given, the first epoch counts them",
        limits=Limits(minimum=1),
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of a warm-up of no length and of a falling threshold."""
        if self.warmup_end_epoch <= self.warmup_start_epoch:
            yield Fault(
                path="warmup_end_epoch",
                problem=f"{self.warmup_end_epoch} is not after 'warmup_start_epoch', which is "
                f"{self.warmup_start_epoch}, so nothing is masked. Raise it.",
            )
        first, last = self.init_importance_threshold, self.final_importance_threshold
        if first is not None and first > last:
            yield Fault(
                path="init_importance_threshold",
                problem=f"{first} is above 'final_importance_threshold', which is {last}; the "
                "threshold never falls. Lower it, or leave it out.",
            )
        if self.sparsity_target is not None and (first is not None or last != 0):
            yield Fault(
                path="sparsity_target",
                problem=f"{self.sparsity_target} decides the thresholds, so "
                "'init_importance_threshold' and 'final_importance_threshold' would do nothing. "
                "Leave out those two, or this key.",
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseStructure(Section):
    """Which entries share one score in the weights of some scopes."""

    mode: Literal["fine", "block", "per_dim"] = required(
        "one score per entry, per block, or per index along an axis"
    )
    target_scopes: tuple[str, ...] = required(
        "addresses, scopes or {re} patterns of the operations this applies to", single=True
    )
    sparse_factors: tuple[int, ...] | None = option(
        None,
        "the sizes of a block, one per axis of the weight; only for 'block'",
        limits=Limits(minimum=1),
    )
    axis: int | None = option(
        None, "the axis whose indices have scores; only for 'per_dim'", limits=_EPOCH
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of keys that the mode requires or does not use."""
        for key, mode, value in (
            ("sparse_factors", "block", self.sparse_factors),
            ("axis", "per_dim", self.axis),
        ):
            if mode == self.mode and value is None:
                yield Fault(path=key, problem=f"is missing, and mode '{mode}' needs it. Add it.")
            # NNCF accepts a block of a single entry, (1, 1), with 'fine' too
            is_single = self.mode == "fine" and value == (1, 1)
            if mode != self.mode and value is not None and not is_single:
                yield Fault(
                    path=key,
                    problem=f"belongs to mode '{mode}', and the mode is '{self.mode}', where it "
                    "would do nothing. Take it out.",
                )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class MovementSparsityConfig(TrainedAlgorithmConfig):
    """Learn scores of weights while fine-tuning; weights that move towards zero are masked."""

    algorithm: ClassVar[str] = "movement_sparsity"

    params: MovementSparsityParams = required("the warm-up, and the strength of the penalty")
    sparse_structure_by_scopes: tuple[SparseStructure, ...] = option(
        (), "which entries share a score, by scopes; elsewhere, each entry has its own"
    )

    @override
    def with_scopes(self, resolve: ScopeResolver) -> Self:
        """Return this config with its scopes and those of the structures resolved."""
        key = "sparse_structure_by_scopes"
        structures = [
            dataclasses.replace(
                one,
                target_scopes=resolved_scopes(
                    f"{key}[{number}].target_scopes", one.target_scopes, resolve
                ),
            )
            for number, one in enumerate(self.sparse_structure_by_scopes)
        ]
        scoped = super().with_scopes(resolve)
        return dataclasses.replace(scoped, sparse_structure_by_scopes=tuple(structures))
