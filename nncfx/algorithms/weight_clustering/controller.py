"""The controller of weight clustering, in which the weights of a layer share a few values.

Codes are assigned once, by k-means on the non-zero weights. From then on the forward reads each
weight as the mean of the weights with its code, so training moves the shared values with any
optimizer. Zeros stay zero, and weights that sparsity removes later are read as zero.

Source: Han et al. (2016), Deep Compression, section 3.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.algorithms.weight_clustering.config import WeightClusteringConfig
from nncfx.algorithms.weight_clustering.hook import DENSE_BITS, ClusterHook, bits_of_level
from nncfx.controllers import BaselineSchedule, Controller, EpochScheduler, Statistics, WarmUp
from nncfx.controllers.base.statistics import table
from nncfx.controllers.base.weights import raw_parameters
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork
from nncfx.schemes.kmeans import kmeans_1d

ALGORITHM = WeightClusteringConfig.algorithm


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerClustering:
    """Statistics of the shared values of one weight.

    Attributes:
        name: Dotted name of the parameter.
        shape: Its shape.
        bits: Bits of a code.
        values: Number of distinct non-zero values; 0 before the weights are clustered.
    """

    name: str
    shape: tuple[int, ...]
    bits: int
    values: int


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringStatistics(Statistics):
    """Statistics of clustering.

    Attributes:
        target_level: The level that was set.
        level: Fraction of the clustered weights' float32 bits that codes save.
        layers: One entry per clustered weight, in order of execution.
    """

    target_level: float
    level: float
    layers: tuple[LayerClustering, ...]

    @override
    def to_str(self) -> str:
        rows: list[list[object]] = [
            [layer.name, " x ".join(map(str, layer.shape)), layer.bits, layer.values]
            for layer in self.layers
        ]
        rows.append(["saved of all clustered weights", "", f"{self.level:.3f}", ""])
        return table(["weight", "shape", "bits", "values"], rows)


@final
class WeightClusteringController(Controller):
    """Clusters the weights at the start epoch; a level is the fraction of bits saved.

    The level of `b` bits is 1 - b / 32. Setting a level assigns new codes, to the weights after
    all earlier hooks. Layers with individual bits keep their difference from the others.

    Attributes:
        config: The algorithm's config.
        hooks: The hooks by parameter.
        bits: Bits of a code by parameter, from the config.
    """

    def __init__(
        self,
        model: NNCFNetwork,
        config: WeightClusteringConfig,
        hooks: Mapping[str, ClusterHook],
        bits: Mapping[str, int],
    ) -> None:
        super().__init__(model, ALGORITHM, [config])
        self.config = config
        self.hooks = dict(hooks)
        self.bits = dict(bits)
        start = config.params.start_epoch
        target = BaselineSchedule(target=1 - config.bits / DENSE_BITS)
        self.scheduler = EpochScheduler(self, WarmUp(epochs=start, then=target), start)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        for name, hook in tracked(self.hooks.items(), "Clustering weights"):
            weight = self._weight_before(name, hook)
            values = weight[weight != 0]
            if level == 0:
                hook.rest()
            elif values.numel():
                k = 2 ** self._bits(name, level) - 1
                hook.cluster(weight, kmeans_1d(values, k, init=params.init, seed=params.seed))

    def _bits(self, name: str, level: float) -> int:
        moved = bits_of_level(level) - self.config.bits
        return min(max(self.bits[name] + moved, 1), DENSE_BITS)

    @torch.no_grad()
    def _weight_before(self, name: str, own: ClusterHook) -> Tensor:
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        weight: Tensor = raw_parameters(self.model)[name]
        for insertion in self.model.nncf.hooks:
            if insertion.hook is own:
                break
            if str(insertion.site) == name:
                # evaluate without the noise that some hooks add in training
                was_training = insertion.hook.training
                weight = insertion.hook.eval()(weight)
                insertion.hook.train(was_training)
        return weight.detach()

    @override
    def statistics(self) -> ClusteringStatistics:
        parameters = raw_parameters(self.model)
        layers = tuple(
            LayerClustering(
                name=name,
                shape=tuple(parameters[name].shape),
                bits=self._bits(name, self.level) if self.level else DENSE_BITS,
                values=hook.size - 1,
            )
            for name, hook in self.hooks.items()
        )
        total = sum(math.prod(layer.shape) for layer in layers)
        bits = sum(math.prod(layer.shape) * layer.bits for layer in layers)
        return ClusteringStatistics(
            target_level=self.level,
            level=1 - bits / (DENSE_BITS * total),
            layers=layers,
            unread=self.unread,
        )
