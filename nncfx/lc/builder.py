"""Inserts L-C hooks on all weights that its schemes compress."""

import logging
from collections.abc import Sequence
from typing import Final, final

from typing_extensions import override

from nncfx.controllers import Builder, register_algorithm
from nncfx.controllers.base.weights import aliases, hooks_by_weight, raw_parameters
from nncfx.errors import CompressionError
from nncfx.lc.config import LCConfig
from nncfx.lc.controller import ALGORITHM, LCController
from nncfx.lc.penalty import CompressedWeight
from nncfx.network import NNCFNetwork, unwrap
from nncfx.operators import operator_of
from nncfx.schemes import Scheme
from nncfx.schemes.from_config import schemes_from
from nncfx.schemes.layers import kinds_in
from nncfx.tracing import Insertion, Priority, WeightSite
from nncfx.tracing.calls.model_copy import copy_of

_LOGGER: Final = logging.getLogger(__name__)


@final
@register_algorithm(LCConfig)
class LCBuilder(Builder[LCConfig]):
    """Inserts a compressed weight at every parameter that the schemes constrain."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        names = aliases(model)
        parameters = raw_parameters(model)
        constrained = sorted(self._scheme(model).parameters(unwrap(copy_of(model))))
        if not constrained:
            raise CompressionError(
                "lc finds no weight to work on: its schemes constrain none that is real within "
                f"the scopes. The kinds of layers here are {kinds_in(model)}; a scheme such as "
                'Prune looks at those that its "layers" names, linear and conv2d by default. '
                """Give "layers", widen 'target_scopes', choose another scheme, or take the """
                "item out."
            )
        if complex_ones := _complex_modules(model):
            named = ", ".join(f"'{one}'" for one in sorted(complex_ones))
            _LOGGER.warning("lc leaves modules with complex weights alone: %s.", named)
        insertions = []
        for name in constrained:
            hook = CompressedWeight(parameters[name].detach())
            insertions += [
                # hooks of other algorithms see the result of this one
                Insertion(WeightSite.of(alias), hook, Priority.DEFAULT, ALGORITHM)
                for alias in names[name]
            ]
        return insertions

    @override
    def controller(self, model: NNCFNetwork, insertions: Sequence[Insertion]) -> LCController:
        hooks = hooks_by_weight(model, insertions, CompressedWeight)
        return LCController(model, self.config, self._scheme(model), hooks)

    def _scheme(self, model: NNCFNetwork) -> Scheme:
        ignored = self._left_alone(model) | _complex_modules(model)
        scheme = schemes_from(self.config.schemes, ignored=sorted(ignored))
        return scheme.bind(model.nncf.channels) if scheme.is_structured else scheme

    def _left_alone(self, model: NNCFNetwork) -> set[str]:
        """Return the modules whose weights are read by an operation outside the scopes."""
        considered = {one.address for one in self.considered(model)}
        return {
            WeightSite.of(name).module
            for one in model.nncf.graph.operations
            if operator_of(one.function).has_weight and one.address not in considered
            for name in one.parameters.values()
        }


def _complex_modules(model: NNCFNetwork) -> set[str]:
    """Return the modules with a complex weight, whose distance is not a real loss."""
    found = raw_parameters(model).items()
    return {WeightSite.of(name).module for name, one in found if one.is_complex()}
