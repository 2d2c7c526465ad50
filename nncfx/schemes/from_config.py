"""From the schemes of a config to schemes."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nncfx.config import SchemeConfig
from nncfx.schemes.clustering import Cluster
from nncfx.schemes.composition import Compose
from nncfx.schemes.heads import HeadPrune
from nncfx.schemes.low_rank import LowRank
from nncfx.schemes.pruning import BlockPrune, Prune
from nncfx.schemes.quantization import Quantize
from nncfx.schemes.scheme import Scheme
from nncfx.schemes.structured import FilterPrune, NeuronPrune, StructurePrune

__all__ = ["schemes_from"]

_CLASSES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            BlockPrune,
            Cluster,
            FilterPrune,
            HeadPrune,
            LowRank,
            NeuronPrune,
            Prune,
            Quantize,
            StructurePrune,
        )
    },
)


def schemes_from(configs: Sequence[SchemeConfig], ignored: Sequence[str] = ()) -> Scheme:
    """Return the one scheme of `configs`, or their composition in this order.

    Args:
        configs: At least one.
        ignored: Dotted names of modules that none of the schemes touches.

    Raises:
        ArgumentError: there is none, or a criterion, dtype or kind of layer is not known.
    """
    schemes: list[Scheme] = [
        _CLASSES[one.name](**one.settings, ignored=tuple(ignored)) for one in configs
    ]
    return schemes[0] if len(schemes) == 1 else Compose(schemes)
