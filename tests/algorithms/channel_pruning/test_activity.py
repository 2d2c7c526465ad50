"""Channels scored by what a model does on data, and the config keys that ask for it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from nncfx.algorithms.channel_pruning.activity import channel_activity
from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, CompressionError, ConfigError, StorageError
from nncfx.network import strip
from nncfx.training.create import create_compressed_model
from small_models import Function

IMAGES = torch.tensor([[[[2.0, 0.0], [0.0, 2.0]]], [[[2.0, 2.0], [2.0, 2.0]]]])


def net() -> nn.Sequential:
    """Return a network whose middle channels are x, -x and the sum of all pixels of x."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.ReLU(), nn.Conv2d(3, 2, 1, bias=False)
    )
    with torch.no_grad():
        model[0].weight.zero_()
        model[0].weight[0, 0, 1, 1] = 1
        model[0].weight[1, 0, 1, 1] = -1
        model[0].weight[2, 0] = 1
    return model


@pytest.mark.parametrize(
    ("importance", "expected"),
    [
        # behind the ReLU: x itself; nothing; the sum of the pixels, 4 and 8
        ("mean_activation", [1.5, 0, 6]),
        ("APoZ", [0.75, 0, 1]),
        ("HRank", [1.5, 0, 1]),
    ],
)
def test_scores_are_of_what_the_reader_is_given(importance: str, expected: list[float]) -> None:
    """Worked by hand: the mean over two images, behind the activation function."""
    model = net()
    channels = analyze_channels(model, IMAGES)
    (found,) = channel_activity(model, channels, [IMAGES], importance, 2).values()
    assert found.tolist() == pytest.approx(expected)


def test_batches_of_any_size_give_one_mean_and_samples_end_it() -> None:
    """Two batches of one count as one of two; with one sample the second is not read."""
    model = net()
    channels = analyze_channels(model, IMAGES)
    batches = [(IMAGES[:1], "label"), {"input": IMAGES[1:]}]
    (both,) = channel_activity(model, channels, batches, "mean_activation", 2).values()
    assert both.tolist() == pytest.approx([1.5, 0, 6])
    (one,) = channel_activity(model, channels, batches, "mean_activation", 1).values()
    assert one.tolist() == pytest.approx([1, 0, 4])
    assert not model[0]._forward_hooks
    assert not model[2]._forward_pre_hooks


def test_linear_layers_of_gpt_2_show_channels() -> None:
    model = nn.Sequential(Conv1D(3, 2), nn.ReLU(), Conv1D(2, 3))
    model[0].weight.data = torch.tensor([[1.0, -1.0, 2.0], [0.0, 0.0, 1.0]])
    x = torch.tensor([[1.0, 1.0], [3.0, 1.0]])
    (found,) = channel_activity(
        model, analyze_channels(model, x), [x], "mean_activation", 2
    ).values()
    assert found.tolist() == [2, 0, 5]  # means of (1, 3), nothing, and (3, 7)


def applied(importance: str, batches: Any = (IMAGES,), **params: object) -> Any:  # noqa: ANN401
    """Apply structure pruning of a third of the channels."""
    params = {"align": 1, "pruning_target": 0.4, "filter_importance": importance} | params
    item = {"algorithm": "structure_pruning", "pruning_init": 0.4, "params": params}
    return create_compressed_model(
        net(), {"compression": item}, IMAGES, calibration_batches=batches
    )


@pytest.mark.parametrize("importance", ["mean_activation", "APoZ", "HRank"])
def test_the_channel_of_least_activity_goes(importance: str) -> None:
    """The channel that the ReLU silences goes, though its weights are as large as another's."""
    _, model = applied(importance)
    assert strip(model)[0].weight.flatten(1).any(dim=1).tolist() == [True, False, True]


def test_scores_are_restored_with_the_state() -> None:
    """A controller that goes on from a state ranks as before, without data."""
    controller, model = applied("mean_activation", pruning_target=0.7)
    state = controller.state_dict()
    item = {"algorithm": "structure_pruning", "pruning_init": 0.4}
    item["params"] = {"align": 1, "pruning_target": 0.7, "filter_importance": "mean_activation"}
    again, other = create_compressed_model(
        net(), {"compression": item}, IMAGES, compression_state=state
    )
    other.load_state_dict(model.state_dict())
    again.level = 0.67
    assert strip(other)[0].weight.flatten(1).any(dim=1).tolist() == [False, False, True]
    with pytest.raises(StorageError, match=r"missing \['0'\]"):
        again.load_state_dict({key: one for key, one in state.items() if key != "activity"})


def test_without_data_the_error_says_what_to_pass() -> None:
    """No model is changed, and both ways out are named."""
    with pytest.raises(ArgumentError, match=r"which channels go first from 256 samples.*'L2'"):
        applied("HRank", None)


def test_no_image_is_an_error() -> None:
    """Linear layers have no feature maps."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    x = torch.ones(2, 3)
    item = {"algorithm": "neuron_pruning", "params": {"filter_importance": "HRank"}}
    with pytest.raises(
        CompressionError, match="No convolution reads or gives the channels of '0'"
    ):
        create_compressed_model(model, {"compression": item}, x, calibration_batches=[x])
    assert type(model) is nn.Sequential


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"filter_importance": "APoZ", "constrained": False},
            "layers choose by their own weights",
        ),
        ({"filter_importance": "Taylor"}, "taylor_scores"),
        ({"filter_importance": "Hrank"}, "Did you mean 'HRank'"),
    ],
)
def test_faults_of_the_config_are_told(params: dict[str, object], message: str) -> None:
    """What cannot be is refused with the reason or the fix."""
    item = {"algorithm": "filter_pruning", "params": params}
    with pytest.raises(ConfigError, match=message):
        create_compressed_model(net(), {"compression": item}, IMAGES)


def test_scales_of_norms_decide_if_asked() -> None:
    """The channel of the smallest scale goes, whatever its filter."""
    model = nn.Sequential(nn.Conv2d(1, 3, 1), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 2, 1))
    with torch.no_grad():
        model[0].weight.copy_(Tensor([1, 2, 3]).view(3, 1, 1, 1))
        model[1].weight.copy_(Tensor([0.5, 2, -0.1]))
    params = {"align": 1, "pruning_target": 0.4, "filter_importance": "batch_norm_scale"}
    item = {"algorithm": "structure_pruning", "pruning_init": 0.4, "params": params}
    _, wrapped = create_compressed_model(model, {"compression": item}, IMAGES)
    assert strip(wrapped)[0].weight.flatten().tolist() == [1, 2, 0]


def test_what_weights_would_remove_at_first_is_scored_as_it_would_be_active() -> None:
    """Masks of the first level, which weights choose, are no part of what is measured."""
    model = net()
    with torch.no_grad():
        model[0].weight[0] /= 2  # now of the smallest norm, and not of the smallest activity
    params = {"align": 1, "pruning_target": 0.4, "filter_importance": "mean_activation"}
    item = {"algorithm": "structure_pruning", "pruning_init": 0.4, "params": params}
    controller, masked = create_compressed_model(
        model, {"compression": item}, IMAGES, calibration_batches=[IMAGES]
    )
    assert controller.state_dict()["activity"] == {"0": pytest.approx([0.75, 0, 6])}
    assert strip(masked)[0].weight.flatten(1).any(dim=1).tolist() == [True, False, True]


def test_a_layer_may_be_given_its_input_by_name() -> None:
    """A call `conv(input=x)` shows what `conv(x)` does."""

    def forward(m: Function, x: Tensor) -> Tensor:
        return m.layers[2](input=m.layers[1](m.layers[0](x)))

    model = Function(forward, layers=net())
    channels = analyze_channels(model, IMAGES)
    (found,) = channel_activity(model, channels, [IMAGES], "mean_activation", 2).values()
    assert found.tolist() == pytest.approx([1.5, 0, 6])
