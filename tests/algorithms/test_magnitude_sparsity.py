"""Magnitude sparsity: exact counts, what it touches, what it reports."""

import pytest
import torch
from torch import Tensor, nn

from nncfx.algorithms.magnitude_sparsity.builder import MagnitudeSparsityController
from nncfx.errors import CompressionError
from nncfx.network import strip
from nncfx.training.create import create_compressed_model


def applied(model: nn.Module, inputs: Tensor, **item: object) -> MagnitudeSparsityController:
    config = {"compression": {"algorithm": "magnitude_sparsity"} | item}
    return create_compressed_model(model, config, inputs)[0]


def two_layers() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model[1].weight.copy_(torch.tensor([[10.0, -20.0]]))
    return model


def test_only_weights_of_layers_are_touched() -> None:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
    controller = applied(model, torch.randn(2, 1, 4, 4))
    assert list(controller.masks.hooks) == ["0.weight", "3.weight"]


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_the_matrices_of_a_recurrent_layer_are_touched(layer: type[nn.Module]) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(5, 2, 6)
    controller = applied(layer(6, 8, num_layers=2), inputs, sparsity_init=0.5)
    masked, stripped = controller.model, strip(controller.model)
    matrices = [one for one in stripped.parameters() if one.ndim == 2]
    zeros = sum(int((one == 0).sum()) for one in matrices)
    assert zeros == sum(one.numel() for one in matrices) // 2
    torch.testing.assert_close(masked(inputs)[0], stripped(inputs)[0])


def test_an_ignored_layer_is_left_alone() -> None:
    controller = applied(two_layers(), torch.ones(1, 2), ignored_scopes=["{re}Linear\\[0\\]"])
    assert list(controller.masks.hooks) == ["1.weight"]


def test_a_target_scope_leaves_all_else_alone() -> None:
    target = "Sequential/Linear[0]/linear_0"
    controller = applied(two_layers(), torch.ones(1, 2), target_scopes=[target])
    assert list(controller.masks.hooks) == ["0.weight"]


def test_local_mode_takes_the_same_fraction_of_each_layer() -> None:
    params = {"sparsity_level_setting_mode": "local", "weight_importance": "abs"}
    controller = applied(two_layers(), torch.ones(1, 2), sparsity_init=0.5, params=params)
    bare = strip(controller.model)
    assert bare.get_parameter("0.weight").tolist() == [[0, 0], [3, 4]]
    assert bare.get_parameter("1.weight").tolist() == [[0, -20]]


def test_the_initial_level_is_applied_at_once() -> None:
    controller = applied(two_layers(), torch.ones(1, 2), sparsity_init=0.5)
    assert controller.level == 0.5
    assert controller.statistics().level == pytest.approx(0.5)


def test_a_masked_weight_keeps_its_value_and_comes_back() -> None:
    controller = applied(two_layers(), torch.ones(1, 2))
    controller.level = 0.5
    controller.level = 0.0
    assert controller.model(torch.ones(1, 2)).item() == two_layers()(torch.ones(1, 2)).item()


def test_a_weight_shared_by_two_layers_has_one_mask_in_both() -> None:
    model = two_layers()
    model[1] = nn.Linear(2, 2, bias=False)
    model[1].weight = model[0].weight
    controller = applied(model, torch.ones(1, 2))
    controller.level = 0.5
    first, second = controller.masks.hooks["0.weight"]
    assert torch.equal(first.mask, second.mask)
    assert len({one.name for one in controller.statistics().layers}) == 1


def test_statistics_count_what_is_masked() -> None:
    controller = applied(two_layers(), torch.ones(1, 2), params={"weight_importance": "abs"})
    controller.level = 0.5
    statistics = controller.statistics()
    assert statistics.target_level == statistics.level == statistics.model_level == 0.5
    assert [(one.name, one.level) for one in statistics.layers] == [
        ("0.weight", 0.75),
        ("1.weight", 0.0),
    ]


def test_statistics_print_as_a_table() -> None:
    params = {"weight_importance": "abs"}
    controller = applied(two_layers(), torch.ones(1, 2), sparsity_init=0.5, params=params)
    text = str(controller.statistics())
    assert text.splitlines()[0].split() == ["weight", "shape", "share", "sparsity"]
    assert text.splitlines()[1].split() == ["0.weight", "2", "x", "2", "0.667", "0.750"]


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(CompressionError, match="finds no weight to work on"):
        applied(nn.Sequential(nn.ReLU()), torch.ones(1, 2))


@pytest.mark.parametrize(
    ("init", "params", "published"),
    [
        (
            0.2,
            {"sparsity_target": 0.6, "sparsity_target_epoch": 2, "power": 1},
            [0.2, 0.4, 0.6, 0.6],
        ),
        (
            0.2,
            {"schedule": "exponential", "sparsity_target": 0.6, "sparsity_target_epoch": 2},
            [0.2, 0.4343145, 0.6, 0.6],
        ),
        (
            0.0,
            {"sparsity_target": 0.9, "sparsity_target_epoch": 5},
            [0, 0.1637531, 0.3316987, 0.505455, 0.6885686, 0.9],
        ),
        (
            0.0,
            {
                "schedule": "multistep",
                "multistep_steps": [1, 3],
                "multistep_sparsity_levels": [0.1, 0.3, 0.5],
            },
            [0.1, 0.3, 0.3, 0.5],
        ),
        (0.0, {"schedule": "adaptive", "sparsity_target": 0.12}, [0.05, 0.1, 0.12, 0.12]),
    ],
)
def test_the_schedules_give_the_published_levels(
    init: float, params: dict[str, object], published: list[float]
) -> None:
    controller = applied(
        nn.Sequential(nn.Linear(100, 100)), torch.ones(1, 100), sparsity_init=init, params=params
    )
    for level in published:
        controller.scheduler.epoch_step()
        assert controller.level == pytest.approx(level, abs=1e-7)
        assert controller.statistics().level == pytest.approx(level, abs=1e-4)  # 1 of 10,000
