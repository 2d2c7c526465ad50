"""The inputs of a trace follow the model."""

import pytest
import torch
from torch import nn

import nncfx


class Net(nn.Module):
    """Reads floats of its own type, floats that it brings there itself, and whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
        shift = wide.to(self.layer.weight.dtype)
        result: torch.Tensor = self.layer(x + self.table(ids) + shift)
        return result


def inputs() -> tuple[torch.Tensor, ...]:
    return torch.randn(2, 4), torch.tensor([1, 3]), torch.randn(2, 4, dtype=torch.float64)


def types(model: nncfx.network.NNCFNetwork) -> list[torch.dtype]:
    return [one.dtype for one in model.nncf.example_inputs]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_floats_of_the_models_type_follow_it_and_others_stay(dtype: torch.dtype) -> None:
    model = nncfx.wrap(Net(), inputs())
    assert types(model) == [torch.float32, torch.int64, torch.float64]
    model.to(dtype)
    assert types(model) == [dtype, torch.int64, torch.float64]
    model.float()
    assert types(model) == [torch.float32, torch.int64, torch.float64]


def test_inputs_stay_where_only_some_weights_have_another_type() -> None:
    model = nncfx.wrap(Net(), inputs())
    model.layer.to(torch.bfloat16)
    assert types(model) == [torch.float32, torch.int64, torch.float64]


def test_a_model_that_is_cast_behind_its_training_is_thinned_by_its_own_inputs() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    image = torch.randn(1, 3, 8, 8)
    pruning = {"algorithm": "filter_pruning", "pruning_init": 0.5}
    config = {"compression": pruning | {"params": {"align": 1, "prune_first_conv": True}}}
    _, network = nncfx.create_compressed_model(model, config, image)
    network.to(torch.bfloat16).eval()
    thinned = nncfx.thin(network).model
    assert thinned[0].weight.shape == (4, 3, 3, 3)
    assert thinned(image.bfloat16()).dtype == torch.bfloat16
