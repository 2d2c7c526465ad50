"""Operations, formats and sensitivities of small networks, counted by hand."""

import dataclasses

import pytest
import torch
from torch import nn

from nncfx.evidence.network_table import operation_facts, weight_facts, with_earlier_changes
from nncfx.tracing import trace


class Skip(nn.Module):
    """Two layers and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x)) + x


def test_operations_say_what_they_read() -> None:
    found = operation_facts(trace(Skip(), torch.ones(1, 4)))
    assert [(one.address.rpartition("/")[2], one.inputs) for one in found] == [
        ("linear_0", (-1,)),
        ("linear_0", (0,)),
        ("__add___0", (1, -1)),
    ]
    assert [one.shape for one in found] == ["1 x 4"] * 3
    assert [one.module for one in found] == ["first", "second", ""]


def test_formats_zeros_and_codebooks() -> None:
    model = nn.Sequential(nn.Linear(40, 20), nn.Linear(20, 10).half(), nn.Linear(20, 10))
    with torch.no_grad():
        model[0].weight.copy_(torch.arange(800).reshape(20, 40) % 4 - 1)  # -1, 0, 1, 2
    clustered, half, plain = weight_facts("012", (model, model), nn.Identity(), torch.ones(1, 40))
    assert (clustered.precision, clustered.bits, clustered.zeros) == ("2-bit codebook", 2, 0.25)
    assert clustered.values == (-1.0, 1.0, 2.0)
    assert sum(clustered.counts) == 600
    assert (half.precision, half.bits, half.values) == ("float16", 16, ())
    assert (plain.precision, plain.output_change) == ("float32", None)


@pytest.mark.parametrize(
    ("values", "precision", "listed"),
    [
        # 12 codes of 2 bits and 3 values of 32, by hand: 120 bits for 384
        ([1.0, 2.0, 3.0] * 4, "2-bit codebook", (1.0, 2.0, 3.0)),
        # of the half that is not zero each is its own value: a pruned layer, no codebook
        ([0.0, 1.0, 0.0, 2.0, 0.0, 3.0, 0.0, 4.0], "float32", ()),
    ],
)
def test_a_small_layer_has_a_codebook_where_that_is_smaller(
    values: list[float], precision: str, listed: tuple[float, ...]
) -> None:
    model = nn.Sequential(nn.Linear(len(values), 1, bias=False))
    model[0].weight.data = torch.tensor([values])
    (found,) = weight_facts("0", (model, model), nn.Identity(), torch.ones(1, len(values)))
    assert (found.precision, found.values) == (precision, listed)


def test_values_are_those_of_the_model_that_runs() -> None:
    """Zeros of channels that are gone were told of a layer that has none."""
    masked, thin = nn.Sequential(nn.Linear(2, 4).half()), nn.Sequential(nn.Linear(2, 3))
    with torch.no_grad():
        masked[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0]]))
        thin[0].weight.copy_(masked[0].weight[:3])
    (found,) = weight_facts("0", (masked, thin), nn.Identity(), torch.ones(1, 2))
    assert (found.precision, found.zeros, sum(found.counts)) == ("float16", 0.0, 6)


def test_a_layer_alone_moves_the_outputs() -> None:
    torch.manual_seed(0)
    dense = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False))
    compressed = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(3, 2, bias=False))
    compressed[0].weight.data = dense[0].weight.data * 0.5
    before = [one.clone() for one in dense.parameters()]
    first, second = weight_facts("01", (compressed, compressed), dense, torch.randn(8, 4))
    assert first.output_change == pytest.approx(0.5)
    assert second.output_change is None  # thinned: of another shape
    assert all(map(torch.equal, before, dense.parameters()))
    earlier = [dataclasses.replace(second, output_change=0.2)]
    assert [one.output_change for one in with_earlier_changes([first, second], earlier)] == [
        first.output_change,
        0.2,
    ]
