"""The config of L-C: schemes by name, and when it compresses. Ours, not NNCF's."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

from typing_extensions import override

from nncfx.config.algorithms.sparsity import SparsityParams, SparsityScheduleName
from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option, required
from nncfx.config.registry import AlgorithmConfig, register_algorithm_config
from nncfx.config.section import Section

__all__ = ["KEYS_OF_SCHEMES", "LCConfig", "LCParams", "SchemeConfig"]

_STRUCTURED: Final = frozenset({"criteria", "align"})
KEYS_OF_SCHEMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "BlockPrune": frozenset({"bs", "criteria", "layers"}),
        "Cluster": frozenset({"bits", "layers"}),
        "FilterPrune": _STRUCTURED,
        "HeadPrune": frozenset({"criteria"}),
        "LowRank": frozenset({"energy", "layers", "rank"}),
        "NeuronPrune": _STRUCTURED,
        "Prune": frozenset({"layers"}),
        "Quantize": frozenset({"dtype", "layers"}),
        "StructurePrune": _STRUCTURED,
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemeConfig(Section):
    """One of `nncfx.schemes`, by the name of its class."""

    name: Literal[
        "BlockPrune",
        "Cluster",
        "FilterPrune",
        "HeadPrune",
        "LowRank",
        "NeuronPrune",
        "Prune",
        "Quantize",
        "StructurePrune",
    ] = required("the scheme")
    criteria: str | None = option(None, "the score of a block or row, such as 'l2norm'")
    bs: int | None = option(None, "the extent of a block", limits=Limits(minimum=1))
    align: int | None = option(
        None,
        "what kept counts are rounded up to a multiple of",
        limits=Limits(minimum=1),
    )
    dtype: str | None = option(None, "what weights are cast to, such as 'float16' or 'int8'")
    bits: int | None = option(None, "the bits of a code", limits=Limits(minimum=1, maximum=8))
    rank: int | None = option(None, "the rank of a weight", limits=Limits(minimum=1))
    energy: float | None = option(
        None,
        "the fraction of squared singular values that stays",
        limits=Limits(above=0, maximum=1),
    )
    layers: tuple[str, ...] = option(
        (), "the kinds of layers, such as 'linear', 'conv2d', 'embedding', 'lstm'", single=True
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of keys that the scheme does not know."""
        for key in self.settings:
            if key not in KEYS_OF_SCHEMES[self.name]:
                known = ", ".join(sorted(KEYS_OF_SCHEMES[self.name])) or "none"
                yield Fault(
                    path=key,
                    problem=f"'{self.name}' does not know it; its keys are: {known}. Take it out.",
                )

    @property
    def settings(self) -> dict[str, Any]:
        """The keys that are given, beside the name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {key: one for key, one in values.items() if key != "name" and one not in (None, ())}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LCParams(SparsityParams):
    """When which level holds, and how strongly weights are drawn to the compressed ones.

    Source: Condensa (Joseph et al. 2020), section 3.2.
    """

    schedule: SparsityScheduleName = option(  # noqa: RUF009 (option makes a field)
        "constant",
        "how the level goes from 0 to sparsity_target",
    )
    epochs_per_step: int = option(
        1,
        "epochs of training between two compressions: the length of an L step",
        limits=Limits(minimum=1),
    )
    mu_init: float = option(1e-3, "the penalty of the first L step", limits=Limits(above=0))
    mu_multiplier: float = option(1.1, "its factor at each step", limits=Limits(minimum=1))
    mu_cap: float = option(1e4, "above which it grows no more", limits=Limits(above=0))
    multipliers: bool = option(
        default=True,
        doc="whether there are Lagrange multipliers; without, it is the quadratic penalty",
    )
    penalize: Literal["weights", "all"] = option(
        "all",
        "whether the penalty draws biases and norms as well, or weights of two and more axes only",
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of a schedule, and of keys that mean nothing to L-C."""
        yield from super().rules()
        if self.sparsity_level_setting_mode == "local":
            yield Fault(
                path="sparsity_level_setting_mode",
                problem="the schemes of lc rank all weights together. Remove the key.",
            )
        if self.update_per_optimizer_step:
            yield Fault(
                path="update_per_optimizer_step",
                problem="lc compresses between epochs, so that a level within one would have no "
                "effect. Remove the key.",
            )


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class LCConfig(AlgorithmConfig):
    """Train by L-C: the loss draws the weights to their compressed values."""

    algorithm: ClassVar[str] = "lc"

    schemes: tuple[SchemeConfig, ...] = option(
        (SchemeConfig(name="Prune"),),
        "what compresses; several are applied in their order",
        single=True,
        limits=Limits(min_items=1),
    )
    params: LCParams = option(  # noqa: RUF009 (a frozen default is safe to share)
        LCParams(),
        "when which level holds, and how strongly weights are drawn",
    )
