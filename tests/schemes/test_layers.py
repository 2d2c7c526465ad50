"""Layers are found by exact type, through wrapping, and can be ignored by name."""

import pytest
import torch
import transformers
from torch import nn
from torch.nn.utils import parametrizations

from nncfx.errors import CompressionError, GraphError
from nncfx.network import wrap
from nncfx.schemes import Prune, Quantize, Scheme
from nncfx.schemes.layers import parameter_names, select_layers
from nncfx.tracing import Insertion, Priority, WeightSite


class OwnLinear(nn.Linear):
    pass


def names(model: nn.Module, **options: object) -> list[str]:
    return [layer.name for layer in select_layers(model, (nn.Linear,), **options)]  # type: ignore[arg-type] # options are forwarded


def test_subclasses_count_unless_the_kinds_are_exact() -> None:
    model = nn.Sequential(nn.Linear(2, 2), OwnLinear(2, 2), nn.Bilinear(2, 2, 2))
    assert names(model) == ["0", "1"]
    assert names(model, exact=True) == ["0"]


def test_the_projection_of_attention_counts_as_the_linear_layer_it_is() -> None:
    assert names(nn.TransformerEncoderLayer(4, 2, 8)) == [
        "self_attn.out_proj",
        "linear1",
        "linear2",
    ]


def test_a_single_layer_is_a_model() -> None:
    assert names(nn.Linear(2, 2)) == [""]


def test_ignored_takes_names_and_regular_expressions() -> None:
    model = nn.ModuleDict({"head": nn.Linear(2, 2), "a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    assert names(model, ignored=["head"]) == ["a", "b"]
    assert names(model, ignored=["{re}^[ab]$"]) == ["head"]


def test_an_ignored_name_that_matches_nothing_is_refused() -> None:
    with pytest.raises(GraphError, match=r"'haed' in ignored .*Did you mean 'head'"):
        names(nn.ModuleDict({"head": nn.Linear(2, 2)}), ignored=["haed"])


def test_a_broken_regular_expression_is_refused() -> None:
    with pytest.raises(GraphError, match="no regular expression"):
        names(nn.Sequential(nn.Linear(2, 2)), ignored=["{re}["])


def test_parametrized_layers_are_refused_with_the_fix() -> None:
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 2)))
    with pytest.raises(CompressionError, match="remove_parametrizations"):
        names(model)


def test_lazy_layers_are_refused() -> None:
    with pytest.raises(CompressionError, match="run the model once"):
        names(nn.Sequential(nn.LazyLinear(3)))


def test_a_shared_parameter_has_one_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    assert parameter_names(model, [model[1].weight]) == {"0.weight"}


def test_a_wrapped_layer_counts_as_what_it_was() -> None:
    model = wrap(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    site = WeightSite("0", "weight")
    model.nncf.register([Insertion(site, nn.Identity(), Priority.SPARSITY, "test")])
    model.nncf.commit()
    assert names(model) == ["0"]


@pytest.mark.parametrize(
    ("scheme", "values"),
    [
        (Prune(), [[1.0, 0, 3], [0, 4, 0]]),
        (Quantize("float16"), [[1.0, -0.25, 3], [0.5, 4, -0.5]]),
        (Quantize("int8"), [[42 * 3 / 127, -11 * 3 / 127, 3], [16 * 4 / 127, 4, -16 * 4 / 127]]),
    ],
)
def test_linear_layers_are_those_of_gpt_2_as_well(
    scheme: Scheme, values: list[list[float]]
) -> None:
    layer = transformers.pytorch_utils.Conv1D(3, 2)
    layer.weight.data = torch.tensor([[1.0, -0.25, 3], [0.5, 4, -0.5]])
    scheme.compress(layer, 0.5)
    assert torch.allclose(layer.weight.float(), torch.tensor(values))
