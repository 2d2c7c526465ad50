"""Measures how each choice of bits changes the values on each edge, in one forward."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.hago.execution.simulation import HookSites, SimQ
from nncfx.hago.search.evaluation import Evaluator
from nncfx.hago.strategy.choice_space import Choices
from nncfx.hago.strategy.edge_plan import EdgePlan, make_plan
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, Priority, run
from nncfx.tracing.calls.model_copy import copy_of


class EdgeWatch(nn.Module):
    """A hook that observes the values on an edge without changing them.

    Args:
        plans: The plan of the edge for each choice of bits.

    Attributes:
        errors: For each choice, the sum of the squared errors in the last forward.
        zeros: Zeros added to the values in the last forward, to obtain their gradient.
    """

    def __init__(self, plans: Mapping[int, EdgePlan]) -> None:
        super().__init__()
        self._rounded = {bits: SimQ(plan, is_exact=False) for bits, plan in plans.items()}
        self.errors: dict[int, float] = {}
        self.zeros = torch.empty(0, device="cpu")

    @override
    def forward(self, data: Tensor) -> Tensor:
        with torch.no_grad():
            self.errors = {
                bits: float((one(data) - data).square().sum())
                for bits, one in self._rounded.items()
            }
        if not torch.is_grad_enabled():
            return data
        self.zeros = torch.zeros_like(data, requires_grad=True)
        return data + self.zeros


def watched_model(
    evaluator: Evaluator, choices: Choices
) -> tuple[NNCFNetwork, dict[int, EdgeWatch]]:
    """Return the float model with a hook on every edge that has a choice.

    The keys are positions of edges among the quantized ones, as in `choices`.
    """
    model = copy_of(evaluator.graph.model)
    numbers = evaluator.strategy.topology.quantized_edges
    most = tuple(one[0] for one in choices)
    sites = HookSites(evaluator.graph)
    hooks = {}
    for edge, each in enumerate(choices):
        if len(each) > 1:
            asked = {bits: (*most[:edge], bits, *most[edge + 1 :]) for bits in each}
            hooks[edge] = EdgeWatch(
                {bits: _plan(evaluator, numbers[edge], one) for bits, one in asked.items()}
            )
    model.nncf.register(
        Insertion(sites.of_edge(numbers[edge]), hook, Priority.STATISTICS, "watch")
        for edge, hook in hooks.items()
    )
    model.nncf.commit()
    return model, hooks


@torch.no_grad()
def rounding_errors(evaluator: Evaluator, choices: Choices) -> list[dict[int, float]]:
    """Return the squared error of the values for each choice of bits at each edge, alone.

    It is summed over the elements and over the batches of `evaluator`, for weights once per batch;
    all other edges carry floats. An edge with one choice has 0.
    """
    model, hooks = watched_model(evaluator, choices)
    table = [dict.fromkeys(one, 0.0) for one in choices]
    for inputs, _ in tracked(evaluator.batches, "Rounding errors"):
        run(model, inputs)
        for edge, hook in hooks.items():
            for bits, error in hook.errors.items():
                table[edge][bits] += error
    return table


def _plan(evaluator: Evaluator, number: int, bits: tuple[int, ...]) -> EdgePlan:
    plan = make_plan(evaluator.graph, evaluator.hardware, evaluator.strategy_of(bits))
    return plan.edges[number]
