"""The config of N:M sparsity."""

import dataclasses
from collections.abc import Iterator
from typing import ClassVar

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option
from nncfx.config.registry import InitializedAlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section


@dataclasses.dataclass(frozen=True, kw_only=True)
class NMSparsityParams(Section):
    """The pattern of N:M sparsity, and when it holds."""

    n: int = option(2, "how many of m weights are kept", limits=Limits(minimum=1))
    m: int = option(4, "how many weights make a group", limits=Limits(minimum=2))
    start_epoch: int = option(
        0, "the epoch, counted from 0, from which the pattern holds", limits=Limits(minimum=0)
    )
    freeze_epoch: int = option(
        100, "the epoch, counted from 0, from which the masks are frozen", limits=Limits(minimum=0)
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield a fault if the pattern removes nothing."""
        if self.n >= self.m:
            yield Fault(
                path="n", problem=f"{self.n} of {self.m} removes nothing. Choose n below m."
            )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class NMSparsityConfig(InitializedAlgorithmConfig):
    """Keep n weights of every m neighbours along the input channels (nncfx only)."""

    algorithm: ClassVar[str] = "nm_sparsity"

    params: NMSparsityParams = option(NMSparsityParams(), "the pattern, and when it holds")
