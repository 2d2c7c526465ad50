"""Which calls compute in integers."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nncfx import hago
from nncfx.hago.rules.topology import default_override

PRODUCTS: dict[str, Callable[["Added", Tensor], Tensor]] = {
    "addmm": lambda model, x: torch.addmm(model.bias, x, model.weight),
    "baddbmm": lambda model, x: torch.baddbmm(model.bias, x[None], model.weight[None])[0],
}


class Added(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.weight, self.bias = nn.Parameter(torch.ones(8, 6)), nn.Parameter(torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        return PRODUCTS[self.name](self, x)


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_matrix_at_the_third_port_is_no_bias(name: str) -> None:
    """What is added stands first there: no rule infers the scale of such a sum."""
    graph = hago.prepare_graph(Added(name).eval(), torch.ones(4, 8))
    assert graph.biases == {}
    (node,) = (one for one in graph.nodes if one.name.endswith(f"{name}_0"))
    assert default_override(node) is False


def test_a_linear_layer_has_its_bias_there() -> None:
    graph = hago.prepare_graph(nn.Sequential(nn.Linear(8, 6)).eval(), torch.ones(4, 8))
    (number,) = graph.biases
    assert graph.biases[number] == "0.bias"
    assert default_override(graph.nodes[number]) is None
