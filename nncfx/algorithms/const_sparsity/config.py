"""The config of constant sparsity."""

import dataclasses
from typing import ClassVar

from nncfx.config.registry import AlgorithmConfig, register_algorithm_config


@register_algorithm_config
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstSparsityConfig(AlgorithmConfig):
    """Keep the zeros that the weights have."""

    algorithm: ClassVar[str] = "const_sparsity"
