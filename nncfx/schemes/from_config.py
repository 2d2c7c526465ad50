"""Builds schemes from their configs."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from nncfx.config import Fault, SchemeConfig, SearchedScheme
from nncfx.errors import ArgumentError
from nncfx.schemes.clustering import Cluster
from nncfx.schemes.composition import Compose
from nncfx.schemes.heads import HeadPrune
from nncfx.schemes.low_rank import LowRank
from nncfx.schemes.pruning import BlockPrune, Prune
from nncfx.schemes.quantization import Quantize
from nncfx.schemes.rate_distortion.entropy_quantize import EntropyQuantize
from nncfx.schemes.scheme import Scheme
from nncfx.schemes.structured import FilterPrune, NeuronPrune, StructurePrune

_CLASSES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        one.__name__: one
        for one in (
            BlockPrune,
            Cluster,
            EntropyQuantize,
            FilterPrune,
            HeadPrune,
            LowRank,
            NeuronPrune,
            Prune,
            Quantize,
            StructurePrune,
        )
    }
)


def scheme_from(config: SchemeConfig, **more: Any) -> Scheme:  # noqa: ANN401 (of any scheme)
    """Return the scheme of `config`, with additional settings, which override its own.

    Raises:
        ArgumentError: a criterion, dtype or kind of layer is unknown.
    """
    scheme: Scheme = _CLASSES[config.name](**(config.settings | more))
    return scheme


def schemes_from(configs: Sequence[SchemeConfig], ignored: Sequence[str] = ()) -> Scheme:
    """Return the single scheme of `configs`, or their composition in this order.

    Args:
        configs: At least one.
        ignored: Dotted names of modules that all schemes ignore, beside their own.

    Raises:
        ArgumentError: there is no scheme, or a criterion, dtype or kind of layer is unknown.
    """
    schemes = [scheme_from(one, ignored=(*(one.ignored or ()), *ignored)) for one in configs]
    return schemes[0] if len(schemes) == 1 else Compose(schemes)


def scheme_faults(configs: Sequence[SchemeConfig], path: str) -> Iterator[Fault]:
    """Yield the faults of the schemes of `configs`, which are at `path` in a config."""
    for number, one in enumerate(configs):
        choices = (one.choices or {}) if isinstance(one, SearchedScheme) else {}
        first = {key: values[0] for key, values in choices.items()}
        others = ({**first, key: it} for key, values in choices.items() for it in values[1:])
        for chosen in (first, *others):
            try:
                scheme_from(one, **chosen)
            except ArgumentError as error:
                yield Fault(path=f"{path}[{number}]", problem=str(error))
