"""Magnitude sparsity: the weights of smallest magnitude are zero.

Source: NNCF 2.19, "Magnitude sparsity"; Zhu and Gupta, "To prune, or not to prune", 2017.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import final

from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import MagnitudeSparsityConfig
from nncfx.controllers import (
    Builder,
    Controller,
    MaskHook,
    MaskSet,
    Statistics,
    register_algorithm,
    sparsity_scheduler,
    table,
)
from nncfx.controllers.weights import operation_weights, raw_parameters
from nncfx.errors import CompressionError
from nncfx.schemes import MaskScope, magnitude_mask
from nncfx.tracing import Insertion, NNCFNetwork, Priority

__all__ = [
    "LayerSparsity",
    "MagnitudeSparsityBuilder",
    "MagnitudeSparsityController",
    "MagnitudeSparsityStatistics",
    "sparsity_masks",
]

ALGORITHM = MagnitudeSparsityConfig.algorithm


def sparsity_masks(
    weights: Mapping[str, Tensor],
    level: float,
    *,
    scope: MaskScope = "global",
    normed: bool = True,
) -> dict[str, Tensor]:
    """Return the mask of each weight, True where the entry stays.

    Exactly `floor(level * n)` of n entries go; of equal ones the later goes. No weight is emptied.

    Args:
        weights: By name, any shapes.
        level: Fraction to zero, in [0, 1).
        scope: One ranking over all weights, or one for each.
        normed: Divide each weight by its Euclidean norm before ranking (NNCF's `normed_abs`), so
            that layers of small weights are not zeroed first. All-zero weights stay as they are.

    Raises:
        ArgumentError: `level` is not in [0, 1).
        CompressionError: a weight has NaN entries.

    >>> sparsity_masks({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([30.0, 40.0])}, 0.5)
    {'a': tensor([False,  True]), 'b': tensor([False,  True])}
    """
    return magnitude_mask(weights, level, scope=scope, normed=normed)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSparsity:
    """The sparsity of one weight.

    Attributes:
        name: Dotted name of the parameter.
        shape: Its shape.
        level: Fraction of its entries that is masked, in [0, 1].
        share: Fraction of all sparsified entries that are in it, in (0, 1].
    """

    name: str
    shape: tuple[int, ...]
    level: float
    share: float


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class MagnitudeSparsityStatistics(Statistics):
    """What magnitude sparsity has done.

    Attributes:
        target_level: The level that was set.
        level: Fraction of the entries of sparsified weights that is masked.
        model_level: Fraction of all the model's parameters that is masked.
        layers: One entry per sparsified weight, in order of execution.
    """

    target_level: float
    level: float
    model_level: float
    layers: tuple[LayerSparsity, ...]

    @override
    def to_str(self) -> str:
        header = ["weight", "shape", "share", "sparsity"]
        rows: list[list[object]] = [
            [layer.name, " x ".join(map(str, layer.shape)), layer.share, layer.level]
            for layer in self.layers
        ]
        rows.append(["all sparsified weights", "", 1.0, self.level])
        rows.append(["the whole model", "", "", self.model_level])
        return table(header, rows)


@final
class MagnitudeSparsityController(Controller):
    """Masks weights by magnitude at the level its scheduler asks for.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        config: MagnitudeSparsityConfig,
        masks: MaskSet,
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.masks = masks
        self.level = config.sparsity_init
        self.scheduler = sparsity_scheduler(self, config.params, reached=self._reached)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        masks = sparsity_masks(
            self._weights(),
            level,
            scope=params.sparsity_level_setting_mode,
            normed=params.weight_importance == "normed_abs",
        )
        self.masks.set(masks)

    @override
    def statistics(self) -> MagnitudeSparsityStatistics:
        weights = self._weights()
        removed = {name: self.masks.removed(name, w.shape) for name, w in weights.items()}
        sizes = {name: weight.numel() for name, weight in weights.items()}
        total = sum(sizes.values())
        everything = sum(parameter.numel() for parameter in self.model.parameters())
        return MagnitudeSparsityStatistics(
            target_level=self.level,
            level=sum(removed.values()) / total,
            model_level=sum(removed.values()) / everything,
            layers=tuple(
                LayerSparsity(
                    name=name,
                    shape=tuple(weight.shape),
                    level=removed[name] / sizes[name],
                    share=sizes[name] / total,
                )
                for name, weight in weights.items()
            ),
        )

    def _weights(self) -> dict[str, Tensor]:
        parameters = raw_parameters(self.model)
        return {name: parameters[name] for name in self.masks.hooks}

    def _reached(self) -> float:
        return self.statistics().level


@final
@register_algorithm(MagnitudeSparsityConfig)
class MagnitudeSparsityBuilder(Builder[MagnitudeSparsityConfig]):
    """Plans a mask on every weight of convolutions, linear layers and embeddings."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        operations = model.nncf.graph.operations
        weights = operation_weights(model, operations, self.considered(model))
        if not weights:
            raise CompressionError(
                "magnitude_sparsity finds no weight to work on: no convolution, linear layer or "
                "embedding with a parameter of its own lies within the scopes. Widen "
                "'target_scopes', or take the item out of the config.",
            )
        parameters = raw_parameters(model)
        return [
            Insertion(
                site,
                MaskHook.along(parameters[weight.name], range(parameters[weight.name].ndim)),
                Priority.SPARSITY,
                ALGORITHM,
            )
            for weight in weights
            for site in weight.sites
        ]

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> MagnitudeSparsityController:
        return MagnitudeSparsityController(model, self.config, MaskSet.of(model, insertions))
