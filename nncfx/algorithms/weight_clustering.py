"""Weight clustering: the weights of a layer share a few values, and zero stays zero.

Codes are given once, by k-means on the weights that are not zero. From then on every weight reads
as the mean of the weights that have its code, so that training moves the shared values, and any
optimizer will do; the weights that sparsity removes later read as zero.

Source: Han et al. (2016), Deep Compression, section 3.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import Fault, WeightClusteringConfig, config_error
from nncfx.controllers import (
    BaselineSchedule,
    Builder,
    Controller,
    EpochScheduler,
    Statistics,
    WarmUp,
    plan_on_weights,
    register_algorithm,
)
from nncfx.controllers.base.statistics import table
from nncfx.controllers.base.weights import aliases, raw_parameters
from nncfx.errors import did_you_mean
from nncfx.network import NNCFNetwork
from nncfx.schemes.kmeans import kmeans_1d, nearest
from nncfx.tracing import Insertion, Priority

__all__ = [
    "ClusterHook",
    "ClusteringStatistics",
    "LayerClustering",
    "WeightClusteringBuilder",
    "WeightClusteringController",
    "bits_of_level",
    "shared_values",
]

ALGORITHM = WeightClusteringConfig.algorithm
_DENSE_BITS: Final = 32


def bits_of_level(level: float) -> int:
    """Return the bits of a code at `level`, the fraction of a float32's bits that is saved.

    >>> bits_of_level(1 - 5 / 32), bits_of_level(0.0), bits_of_level(0.999)
    (5, 32, 1)
    """
    return max(1, round(_DENSE_BITS * (1 - level)))


def shared_values(weight: Tensor, codes: Tensor, size: int, *, summed: bool = False) -> Tensor:
    """Return each weight as the mean of the weights that have its code.

    Weights that are zero and weights of code 0 are left out of the means and are zero. The
    gradient of a weight is the mean of the gradients of those that share its value, or their sum
    if `summed`.

    Args:
        weight: Any shape.
        codes: int32, of the same shape, in [0, `size`).
        size: How many codes there are.
        summed: Which gradient.

    >>> weight = torch.tensor([1.0, 3.0, 0.0, 8.0])
    >>> shared_values(weight, torch.tensor([1, 1, 1, 2], dtype=torch.int32), 3)
    tensor([2., 2., 0., 8.])
    """
    alive = (codes > 0) & (weight != 0)
    index = torch.where(alive, codes, 0).flatten()
    flat = weight.flatten()
    totals = flat.new_zeros(size).index_add(0, index, flat)
    counts = flat.new_zeros(size).index_add(0, index, torch.ones_like(flat)).clamp(min=1)
    means = totals / counts
    if summed:
        # the difference is zero exactly, and carries the gradient
        means = means.detach() + (totals - totals.detach())
    shared = means.index_select(0, index).view_as(weight)
    return torch.where(alive, shared, 0.0)


@final
class ClusterHook(nn.Module):
    """Lets the weights of one layer share values.

    Attributes:
        codes: int32, one per weight; 0 is zero.
        size: How many codes there are; with one, the weight passes bitwise.
        summed: Which gradient, as for `shared_values`.
    """

    codes: Tensor

    def __init__(self, weight: Tensor, *, summed: bool) -> None:
        super().__init__()
        self.register_buffer("codes", torch.zeros_like(weight, dtype=torch.int32))
        self.size = 1
        self.summed = summed

    @override
    def forward(self, weight: Tensor) -> Tensor:
        if self.size == 1:
            return weight
        return shared_values(weight, self.codes, self.size, summed=self.summed)

    def cluster(self, weight: Tensor, codebook: Tensor) -> None:
        """Give each entry of `weight` that is not zero the nearest value of `codebook`."""
        alive = weight != 0
        self.codes.zero_()
        self.codes[alive] = nearest(weight[alive], codebook).to(torch.int32) + 1
        self.size = codebook.numel() + 1

    def rest(self) -> None:
        """Let the weight pass as it is."""
        self.codes.zero_()
        self.size = 1

    @override
    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.size)

    @override
    def set_extra_state(self, state: Tensor) -> None:
        self.size = int(state)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerClustering:
    """The values of one weight.

    Attributes:
        name: Dotted name of the parameter.
        shape: Its shape.
        bits: Bits of a code.
        values: Distinct values that are not zero; 0 before the weights are clustered.
    """

    name: str
    shape: tuple[int, ...]
    bits: int
    values: int


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusteringStatistics(Statistics):
    """What clustering has done.

    Attributes:
        target_level: The level that was set.
        level: Fraction of the bits of clustered weights that codes save against float32.
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

    The level of `b` bits is 1 - b / 32. Setting one gives codes anew, by the weights as they are
    behind the hooks that stand before, and layers with bits of their own keep their distance.

    Attributes:
        config: The algorithm's config.
        hooks: The hooks by parameter.
        bits: Bits of a code by parameter, as the config has them.
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
        target = BaselineSchedule(target=1 - config.bits / _DENSE_BITS)
        self.scheduler = EpochScheduler(self, WarmUp(epochs=start, then=target), start)

    @override
    def _apply(self, level: float) -> None:
        params = self.config.params
        for name, hook in self.hooks.items():
            weight = self._weight_before(name, hook)
            values = weight[weight != 0]
            if level == 0:
                hook.rest()
            elif values.numel():
                k = 2 ** self._bits(name, level) - 1
                hook.cluster(weight, kmeans_1d(values, k, init=params.init, seed=params.seed))

    def _bits(self, name: str, level: float) -> int:
        moved = bits_of_level(level) - self.config.bits
        return min(max(self.bits[name] + moved, 1), _DENSE_BITS)

    @torch.no_grad()
    def _weight_before(self, name: str, own: ClusterHook) -> Tensor:
        assert isinstance(self.model, NNCFNetwork)  # noqa: S101 (a controller handles one)
        weight: Tensor = raw_parameters(self.model)[name]
        for insertion in self.model.nncf.hooks:
            if insertion.hook is own:
                break
            if str(insertion.site) == name:
                # a hook that is noisy in training shall not be so here
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
                bits=self._bits(name, self.level) if self.level else _DENSE_BITS,
                values=hook.size - 1,
            )
            for name, hook in self.hooks.items()
        )
        total = sum(math.prod(layer.shape) for layer in layers)
        bits = sum(math.prod(layer.shape) * layer.bits for layer in layers)
        return ClusteringStatistics(
            target_level=self.level,
            level=1 - bits / (_DENSE_BITS * total),
            layers=layers,
            unread=self.unread,
        )


@final
@register_algorithm(WeightClusteringConfig)
class WeightClusteringBuilder(Builder[WeightClusteringConfig]):
    """Plans a hook on every weight of convolutions, linear layers and embeddings.

    It stands behind those of sparsity, so that pruned weights are zero when they are clustered.
    """

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        summed = self.config.params.gradient == "sum"
        planned = plan_on_weights(self, model, lambda weight: ClusterHook(weight, summed=summed))
        after = Priority.SPARSITY + 1
        return [dataclasses.replace(one, priority=after) for one in planned]

    @override
    def controller(
        self,
        model: NNCFNetwork,
        insertions: Sequence[Insertion],
    ) -> WeightClusteringController:
        names = aliases(model)
        hooks = {
            names[str(one.site)][0]: one.hook
            for one in insertions
            if isinstance(one.hook, ClusterHook)
        }
        own = self._bits_by_parameter(model, names)
        bits = {name: own.get(name, self.config.bits) for name in hooks}
        return WeightClusteringController(model, self.config, hooks, bits)

    def _bits_by_parameter(
        self,
        model: NNCFNetwork,
        names: Mapping[str, tuple[str, ...]],
    ) -> dict[str, int]:
        chosen: Mapping[str, Any] = self.config.bits_by_scope or {}
        graph = model.nncf.graph
        for scope in graph.unmatched(chosen):
            problem = (
                f"'{scope}' matches no operation.{did_you_mean(scope, graph.addresses)} Print "
                "model.nncf.graph.addresses for those there are."
            )
            raise config_error([Fault(path="bits_by_scope", problem=problem)])
        return {
            names[parameter][0]: bits
            for scope, bits in chosen.items()
            for operation in graph.select([scope])
            for parameter in operation.parameters.values()
            if parameter in names
        }
