"""The config of magnitude sparsity."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import LEVEL, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.sparsity_schedule import SparsityParams, falling_sparsity


@dataclasses.dataclass(frozen=True, kw_only=True)
class MagnitudeSparsityParams(SparsityParams):
    """The schedule of magnitude sparsity, and how it ranks weights."""

    weight_importance: Literal["abs", "normed_abs"] = option(
        "normed_abs", "rank weights by |w|, or by |w| divided by the Euclidean norm of their layer"
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class MagnitudeSparsityConfig(InitializedAlgorithmConfig):
    """Zero the weights of smallest magnitude."""

    algorithm: ClassVar[str] = "magnitude_sparsity"

    sparsity_init: float = option(
        0.0, "the fraction of weights that is zero from the start", limits=LEVEL
    )
    params: MagnitudeSparsityParams = option(
        MagnitudeSparsityParams(), "when which level holds, and how weights are ranked"
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the fault of a schedule that would lead downwards."""
        yield from falling_sparsity(self.sparsity_init, self.params)
