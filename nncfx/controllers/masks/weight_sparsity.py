"""Planning and statistics of the algorithms that zero single weights."""

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, final

from torch import Tensor, nn
from typing_extensions import override

from nncfx.config import AlgorithmConfig
from nncfx.controllers.base.builder import Builder
from nncfx.controllers.base.controller import Controller
from nncfx.controllers.base.statistics import Statistics, table
from nncfx.controllers.base.unread_weights import unread_weights
from nncfx.controllers.base.weights import Weight, computed_from, operation_weights, raw_parameters
from nncfx.controllers.masks.masking import MaskHook, MaskSet
from nncfx.errors import CompressionError, shortened
from nncfx.graph import Operation
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, Priority, WeightSite
from nncfx.tracing.calls.module_check import parametrization_fix
from nncfx.tracing.hooks.store import own_parameters

_LOGGER = logging.getLogger(__name__)

C = TypeVar("C", bound=AlgorithmConfig)


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class LayerSparsity:
    """The sparsity of one weight.

    Attributes:
        name: Dotted name of the parameter.
        shape: Its shape.
        level: Fraction of its entries that are masked, in [0, 1].
        share: Fraction of all sparsified entries that it contains, in (0, 1].
    """

    name: str
    shape: tuple[int, ...]
    level: float
    share: float


@final
@dataclasses.dataclass(frozen=True, kw_only=True)
class SparsityStatistics(Statistics):
    """Statistics of an algorithm that zeroes single weights.

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


def sparsity_statistics(
    model: nn.Module, removed: Mapping[str, int], target_level: float
) -> SparsityStatistics:
    """Return the statistics of a `model`, given the number of `removed` entries by parameter."""
    parameters = raw_parameters(model)
    shapes = {name: tuple(parameters[name].shape) for name in removed}
    sizes = {name: parameters[name].numel() for name in removed}
    total = sum(sizes.values())
    everything = sum(parameter.numel() for parameter in own_parameters(model))
    assert isinstance(model, NNCFNetwork)  # noqa: S101 (a controller handles one)
    return SparsityStatistics(
        target_level=target_level,
        level=sum(removed.values()) / total,
        model_level=sum(removed.values()) / everything,
        unread=unread_weights(model, removed),
        layers=tuple(
            LayerSparsity(
                name=name, shape=shapes[name], level=count / sizes[name], share=sizes[name] / total
            )
            for name, count in removed.items()
        ),
    )


class MaskController(Controller):
    """Base controller of algorithms that mask single weights and define how to reach a level.

    Attributes:
        config: The algorithm's config.
        masks: The masks by parameter.
    """

    config: AlgorithmConfig

    def __init__(self, model: nn.Module, config: AlgorithmConfig, masks: MaskSet) -> None:
        super().__init__(model, config.algorithm, [config])
        self.config = config
        self.masks = masks

    def weights(self) -> dict[str, Tensor]:
        """Return the stored values of weights that have masks."""
        parameters = raw_parameters(self.model)
        return {name: parameters[name] for name in self.masks.hooks}

    @override
    def statistics(self) -> SparsityStatistics:
        return sparsity_statistics(self.model, self.masks.all_removed(self.model), self.level)


def weights_in_scope(
    builder: Builder[Any],
    model: NNCFNetwork,
    *,
    takes: Callable[[Weight], bool] = lambda _: True,
    kind: str = "convolution, linear or recurrent layer, embedding or expert with a parameter",
    are_real: bool = False,
) -> list[Weight]:
    """Return the weights within the builder's scopes, in order of execution; at least one.

    Args:
        builder: The builder whose config has the scopes and the algorithm's name.
        model: The wrapped model.
        takes: Returns whether to include a weight.
        kind: What `takes` includes, for the message.
        are_real: Exclude complex weights.

    Raises:
        CompressionError: there is no such weight.
    """
    considered = builder.considered(model)
    found = operation_weights(model, considered)
    stored = raw_parameters(model)
    left_out = {one.name for one in found if are_real and stored[one.name].is_complex()}
    weights = [weight for weight in found if takes(weight) and weight.name not in left_out]
    algorithm = builder.config.algorithm
    fix = _computed(model, considered) + parametrization_fix(model)
    if not weights:
        raise CompressionError(
            f"{algorithm} finds no weight to work on: no {kind} lies within the scopes"
            f"{' and is real' * bool(left_out)}. Widen "
            f"'target_scopes', or take the item out of the config.{fix}"
        )
    if fix:
        _LOGGER.warning("%s leaves alone weights that are not parameters.%s", algorithm, fix)
    if left_out:
        named = ", ".join(f"'{one}'" for one in sorted(left_out))
        _LOGGER.warning("%s leaves alone complex weights: %s.", algorithm, named)
    if stacks := [one.name for one in found if one.is_stack and not takes(one)]:
        _LOGGER.warning(
            "%s leaves alone the matrices of experts that the code picks from %s.",
            algorithm,
            ", ".join(f"'{one}'" for one in stacks),
        )
    return weights


def _computed(model: NNCFNetwork, considered: Iterable[Operation]) -> str:
    """Return a sentence about matrices from which weights are computed; "" if there are none."""
    readers, stored = computed_from(model, considered), raw_parameters(model)
    if not readers:
        return ""
    named = [f"'{name}' ({function})" for name, function in readers.items()]
    share = sum(stored[name].numel() for name in readers) / sum(
        one.numel() for one in own_parameters(model)
    )
    return (
        f" The forward computes weights from {shortened(named)}, "
        f"{share:.1%} of the model's parameters."
    )


def plan_on_weights(
    builder: Builder[Any],
    model: NNCFNetwork,
    hook: Callable[[Tensor], nn.Module],
    *,
    priority: int = Priority.SPARSITY,
    **which: Any,  # noqa: ANN401 (handed on)
) -> list[Insertion]:
    """Return insertions of `hook(weight)` for the weights within the builder's scopes.

    A weight that several modules share gets one hook, inserted at each of its sites.

    Args:
        builder: The builder whose config has the scopes and the algorithm's name.
        model: The wrapped model.
        hook: Creates the hook for a weight.
        priority: The order of hooks on one weight.
        which: `takes`, `kind` and `are_real` of `weights_in_scope`.

    Raises:
        CompressionError: there is no such weight.
    """
    parameters = raw_parameters(model)
    return [
        Insertion(site, one, priority, builder.config.algorithm)
        for weight in weights_in_scope(builder, model, **which)
        for one in [hook(parameters[weight.name].detach())]
        for site in weight.sites
    ]


class MaskBuilder(Builder[C]):
    """Plans masks on weights of convolutions, linear and recurrent layers, tables, experts.

    Attributes:
        controller_class: Class of the controller, which takes model, config and masks.
    """

    controller_class: ClassVar[type[MaskController]]

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        return self.masked(model)

    def masked(self, model: NNCFNetwork, **which: Any) -> list[Insertion]:  # noqa: ANN401 (as below)
        """Return insertions of masks of ones; `which` is as in `plan_on_weights`."""
        return plan_on_weights(
            self, model, lambda weight: MaskHook.along(weight, range(weight.ndim)), **which
        )

    @override
    def controller(self, model: NNCFNetwork, insertions: Sequence[Insertion]) -> MaskController:
        return self.controller_class(model, self.config, MaskSet.of(model, insertions))


def warn_added_sparsity(hooks: Iterable[Insertion]) -> None:
    """Warn about weights at the sites of `hooks` in which several algorithms zero entries.

    Algorithms that prune channels share those of an axis of a weight that the masks of both cover.
    """
    algorithms: dict[tuple[str, int], set[str]] = {}
    for one in hooks:
        for axis in _masked_axes(one):
            algorithms.setdefault((str(one.site), axis), set()).add(one.algorithm)
    shared = {site: names for (site, _), names in algorithms.items() if len(names) > 1}
    if shared:
        _LOGGER.warning(
            "%s work on the same weights, %s, and none knows the zeros of the others: they can "
            "add up to more than the level of each, or to that of one alone. Keep one of them, or "
            "give each its own weights with 'target_scopes'.",
            ", ".join(sorted(set().union(*shared.values()))),
            shortened([f"'{one}'" for one in shared]),
        )


def _masked_axes(hook: Insertion) -> list[int]:
    """Return the axes along which a hook zeroes a weight; one for single entries."""
    if not isinstance(hook.site, WeightSite):
        return []
    if hook.priority == Priority.PRUNING and isinstance(hook.hook, MaskHook):
        return [axis for axis, size in enumerate(hook.hook.shape) if size > 1]
    return [0] if hook.priority == Priority.SPARSITY else []
