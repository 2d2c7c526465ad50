"""Which weights operations read."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.controllers.base.weights import (
    aliases,
    norm_parameters,
    operation_weights,
    raw_parameters,
)
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import WeightSite


class Tied(nn.Module):
    """An embedding whose weight is the classifier's; a norm; a weight used by a function."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm(4)
        self.mix = nn.Parameter(torch.ones(4, 4))
        self.head = nn.Linear(4, 5)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.norm(self.embed(ids)) @ self.mix)


def wrapped() -> NNCFNetwork:
    model = wrap(Tied(), torch.zeros(1, 3, dtype=torch.long))
    assert isinstance(model, NNCFNetwork)
    return model


def test_a_shared_weight_has_all_its_names() -> None:
    assert aliases(Tied())["head.weight"] == ("embed.weight", "head.weight")


def test_weights_come_in_order_of_execution_each_once() -> None:
    model = wrapped()
    operations = model.nncf.graph.operations
    weights = operation_weights(model, operations)
    assert [weight.name for weight in weights] == ["embed.weight", "mix"]
    assert weights[0].sites == (WeightSite("embed", "weight"), WeightSite("head", "weight"))
    assert weights[1].sites == (WeightSite("", "mix"),)


def test_all_matrices_of_a_recurrent_layer_are_weights_and_its_biases_are_none() -> None:
    layer = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    model = wrap(layer, torch.zeros(5, 1, 3))
    operations = model.nncf.graph.operations
    found = [weight.name for weight in operation_weights(model, operations)]
    assert found == [name for name, one in layer.named_parameters() if one.ndim == 2]
    assert len(found) == 12  # of inputs, of states and projections: two layers, two directions


def test_a_weight_with_an_ignored_reader_is_left_out() -> None:
    model = wrapped()
    operations = model.nncf.graph.operations
    considered = [one for one in operations if one.function != "linear"]
    assert [w.name for w in operation_weights(model, considered)] == ["mix"]


def test_a_matrix_is_a_weight_whichever_product_reads_it() -> None:
    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("einsum", "inner", "matmul"):
                self.register_parameter(name, nn.Parameter(torch.ones(4, 4)))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.einsum("ni,io->no", x, self.einsum)
            return torch.linalg.matmul(torch.inner(x, self.inner), self.matmul)

    model = wrap(Products(), torch.zeros(2, 4))
    operations = model.nncf.graph.operations
    weights = operation_weights(model, operations)
    assert [weight.name for weight in weights] == ["einsum", "inner", "matmul"]


def test_norm_parameters_are_those_that_only_norms_read() -> None:
    model = wrapped()
    norms = norm_parameters(model, model.nncf.graph.operations)
    assert norms == {"norm.weight", "norm.bias"}


def test_raw_parameters_are_there_under_every_name() -> None:
    model = Tied()
    parameters = raw_parameters(model)
    assert parameters["head.weight"] is parameters["embed.weight"] is model.embed.weight


@pytest.mark.parametrize(
    "cast",
    [lambda w, x: w.to(x.dtype), lambda w, x: w.type_as(x), lambda w, _: w.contiguous().clone()],
)
def test_a_weight_that_is_cast_on_its_way_is_read(
    cast: Callable[[Tensor, Tensor], Tensor],
) -> None:
    class Cast(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, cast(self.weight, x), self.bias)

    torch.manual_seed(0)
    x, item = torch.randn(2, 8), {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}
    controller, model = nncfx.create_compressed_model(Cast(8, 4), {"compression": item}, x)
    stripped = controller.strip()
    assert int((stripped.weight == 0).sum()) == 16
    torch.testing.assert_close(stripped(x), model(x))
