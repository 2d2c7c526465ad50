"""The config of a scheme by name. An addition to NNCF's configs."""

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal

from typing_extensions import override

from nncfx.config.faults import Fault
from nncfx.config.option import Limits, option, required
from nncfx.config.section import Section

_WEIGHTS: Final = frozenset({"ignored", "layers"})
_STRUCTURED: Final = frozenset({"align", "criteria", "ignored", "normalize", "prune_bias"})
KEYS_OF_SCHEMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "BlockPrune": _WEIGHTS | {"bs", "criteria"},
        "Cluster": _WEIGHTS | {"bits"},
        "EntropyQuantize": _WEIGHTS | {"bits"},
        "FilterPrune": _STRUCTURED,
        "HeadPrune": _STRUCTURED,
        "LowRank": _WEIGHTS | {"energy", "rank"},
        "NeuronPrune": _STRUCTURED,
        "Prune": _WEIGHTS,
        "Quantize": _WEIGHTS | {"dtype", "restore"},
        "StructurePrune": _STRUCTURED,
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SchemeConfig(Section):
    """One of `nncfx.schemes`, by the name of its class.

    A key that is not given takes the default of the class.
    """

    name: Literal[
        "BlockPrune",
        "Cluster",
        "EntropyQuantize",
        "FilterPrune",
        "HeadPrune",
        "LowRank",
        "NeuronPrune",
        "Prune",
        "Quantize",
        "StructurePrune",
    ] = required("the scheme")
    criteria: str | None = option(None, "the score of a block or row, such as 'l2norm'")
    bs: int | None = option(None, "the size of a block", limits=Limits(minimum=1))
    align: int | None = option(
        None, "kept counts are rounded up to a multiple of it", limits=Limits(minimum=1)
    )
    dtype: str | None = option(
        None, "the dtype to which weights are cast, such as 'float16' or 'int8'"
    )
    restore: str | None = option(None, "the dtype of decompressed weights, such as 'float32'")
    bits: float | None = option(None, "the bits of a code", limits=Limits(above=0))
    rank: int | None = option(None, "the rank of a weight", limits=Limits(minimum=1))
    energy: float | None = option(
        None,
        "the fraction of squared singular values that stays",
        limits=Limits(above=0, maximum=1),
    )
    prune_bias: bool | None = option(None, "whether biases are pruned with their rows")
    normalize: bool | None = option(None, "whether scores are relative to those of their layer")
    layers: tuple[str, ...] | None = option(
        None, "the kinds of layers, such as 'linear', 'embedding', 'lstm'", single=True
    )
    ignored: tuple[str, ...] | None = option(
        None, "dotted names of modules that stay as they are, or {re} patterns", single=True
    )

    @override
    def rules(self) -> Iterator[Fault]:
        """Yield the faults of keys that the scheme does not have."""
        for key in self.settings:
            if key not in KEYS_OF_SCHEMES[self.name]:
                known = ", ".join(sorted(KEYS_OF_SCHEMES[self.name])) or "none"
                yield Fault(
                    path=key,
                    problem=f"'{self.name}' does not know it; its keys are: {known}. Take it out.",
                )

    @property
    def settings(self) -> dict[str, Any]:
        """The given keys, without the name."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {key: one for key, one in values.items() if key != "name" and one is not None}
