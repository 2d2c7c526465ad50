"""The config of the entropy constraint."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar, Final

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section

_MOST_BITS: Final = 16


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntropyConstraintParams(Section):
    """The schedule of the number of bits."""

    bits_init: float = option(
        4.0,
        "bits of a weight in the first epoch, at least 'bits'",
        limits=Limits(above=0, maximum=_MOST_BITS),
    )
    target_epoch: int = option(
        10,
        "the epoch, counted from 0, from which 'bits' holds; until then, the bits of a weight "
        "fall along a cubic curve",
        limits=Limits(minimum=0),
    )
    freeze_epoch: int = option(
        1000,
        "the epoch, counted from 0, from which the grids are frozen",
        limits=Limits(minimum=0),
    )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class EntropyConstraintConfig(InitializedAlgorithmConfig):
    """Limit the bits that weights take in an entropy-coded file (nncfx only)."""

    algorithm: ClassVar[str] = "entropy_constraint"

    bits: float = option(
        2.0,
        "bits of a weight, averaged over all weights: the entropy of their integers",
        limits=Limits(above=0, maximum=_MOST_BITS),
    )
    rate: float = option(
        0.01,
        "what a bit per weight adds to the loss of the task; 0 for no such loss",
        limits=Limits(minimum=0),
    )
    params: EntropyConstraintParams = option(
        EntropyConstraintParams(), "the schedule of the number of bits"
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the fault of initial bits below the final bits."""
        if self.params.bits_init < self.bits:
            yield Fault(
                path="params.bits_init",
                problem=f"is {self.params.bits_init:g}, below bits ({self.bits:g}); training goes "
                f"from more bits to fewer. Write {self.bits:g} or more.",
            )
