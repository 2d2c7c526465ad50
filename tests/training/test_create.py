"""create_compressed_model: what it wraps, what it refuses, and that a refusal changes nothing."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import Tensor, nn

import nncfx
from nncfx.config import (
    AlgorithmConfig,
    InputInfo,
    NNCFConfig,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.controllers import Controller, Statistics, builder_for
from nncfx.errors import ArgumentError, CompressionError, ConfigError, StorageError, TracingError
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.tracing import Priority
from nncfx.training.config_inputs import example_inputs_of
from nncfx.training.create import create_compressed_model
from small_models import Function

INPUTS = torch.ones(1, 3, 8, 8)
MAGNITUDE = {"algorithm": "magnitude_sparsity"}
UNSEEN = {"initializer": {"range": {"num_init_samples": 0}}}
PRUNING = {"algorithm": "filter_pruning", "params": {"align": 1, "prune_first_conv": True}}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.fc = nn.Linear(4, 2)

    def forward(self, image: Tensor, scale: Tensor | None = None) -> Tensor:
        x = self.conv2(self.conv1(image).relu()).mean((2, 3))
        return self.fc(x if scale is None else x * scale)


def test_the_same_object_comes_back_wrapped() -> None:
    model = Net()
    _, network = create_compressed_model(model, {"compression": MAGNITUDE}, INPUTS)
    assert network is model
    assert isinstance(network, NNCFNetwork)
    assert isinstance(network, Net)


def test_a_wrapped_model_needs_no_inputs() -> None:
    controller, _ = create_compressed_model(wrap(Net(), INPUTS), {"compression": MAGNITUDE})
    assert controller.algorithm == "magnitude_sparsity"


def test_inputs_come_from_the_config() -> None:
    config = {"input_info": {"sample_size": [2, 3, 8, 8]}, "compression": MAGNITUDE}
    _, network = create_compressed_model(Net(), config)
    assert network.nncf.graph.inputs[0].shape == (2, 3, 8, 8)


def test_a_config_object_and_a_dict_do_the_same() -> None:
    config = NNCFConfig.from_dict({"compression": MAGNITUDE})
    first, _ = create_compressed_model(Net(), config, INPUTS)
    second, _ = create_compressed_model(Net(), config.to_dict(), INPUTS)
    assert first.configs == second.configs


def test_several_algorithms_give_a_composite() -> None:
    config = {"compression": [MAGNITUDE, PRUNING]}
    controller, network = create_compressed_model(Net(), config, INPUTS)
    assert controller["filter_pruning"].algorithm == "filter_pruning"
    priorities = [one.priority for one in network.nncf.hooks]
    assert priorities == sorted(priorities)
    assert set(priorities) == {Priority.PRUNING, Priority.SPARSITY}


def test_no_algorithm_gives_an_empty_composite() -> None:
    controller, network = create_compressed_model(Net(), {}, INPUTS)
    controller.scheduler.epoch_step()
    assert controller.level == controller.loss().item() == 0
    assert str(controller.statistics()) == "no algorithm"
    assert network.nncf.hooks == ()


def test_a_second_call_adds_an_algorithm_in_the_order_of_priority() -> None:
    _, network = create_compressed_model(Net(), {"compression": MAGNITUDE}, INPUTS)
    pruning, _ = create_compressed_model(network, {"compression": PRUNING})
    at_conv2 = [one for one in network.nncf.hooks if str(one.site) == "conv2.weight"]
    assert [one.algorithm for one in at_conv2] == ["filter_pruning", "magnitude_sparsity"]
    pruning.level = 0.5
    assert pruning.statistics().to_dict()["level"] == 0.5


def test_the_same_algorithm_twice_is_refused_and_the_first_stays() -> None:
    _, network = create_compressed_model(Net(), {"compression": MAGNITUDE}, INPUTS)
    before = network.nncf.hooks
    with pytest.raises(ArgumentError, match="carries magnitude_sparsity already"):
        create_compressed_model(network, {"compression": MAGNITUDE})
    assert network.nncf.hooks == before


def test_without_inputs_nothing_can_be_traced() -> None:
    model = Net()
    with pytest.raises(ArgumentError, match="write 'input_info' into the config"):
        create_compressed_model(model, {"compression": MAGNITUDE})
    assert type(model) is Net


def test_inputs_that_the_model_refuses_leave_it_as_it_was() -> None:
    model = Net()
    with pytest.raises(TracingError):
        create_compressed_model(model, {"compression": MAGNITUDE}, torch.ones(1, 5, 8, 8))
    assert type(model) is Net


def test_scopes_that_match_nothing_are_all_told_with_the_nearest() -> None:
    config = {
        "ignored_scopes": ["Net/Conv2d[conv3]/conv2d_0"],
        "compression": [MAGNITUDE | {"target_scopes": ["{re}nothing"]}],
    }
    model = Net()
    with pytest.raises(ConfigError) as caught:
        create_compressed_model(model, config, INPUTS)
    lines = str(caught.value).splitlines()
    assert lines[0] == "The config has 2 faults:"
    assert lines[1].startswith("  compression[0].target_scopes[0]: '{re}nothing' matches no")
    assert lines[2].startswith("  ignored_scopes[0]: 'Net/Conv2d[conv3]/conv2d_0' matches no")
    assert "Did you mean 'Net/Conv2d[conv" in lines[2]
    assert type(model) is Net


def test_a_broken_regular_expression_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"ignored_scopes\[0\]: .*no regular expression"):
        create_compressed_model(
            Net(), {"ignored_scopes": "{re}[", "compression": MAGNITUDE}, INPUTS
        )


def test_scopes_may_match_nothing_where_the_config_allows_it() -> None:
    item = MAGNITUDE | {"ignored_scopes": ["{re}nothing"], "validate_scopes": False}
    create_compressed_model(Net(), {"compression": item}, INPUTS)


def test_ignored_scopes_add_up_and_own_targets_win() -> None:
    config = {
        "ignored_scopes": ["Net/Conv2d[conv1]"],
        "target_scopes": ["Net/Linear[fc]"],
        "compression": MAGNITUDE
        | {"ignored_scopes": ["Net/Conv2d[conv2]"], "target_scopes": ["{re}.*"]},
    }
    _, network = create_compressed_model(Net(), config, INPUTS)
    assert [str(one.site) for one in network.nncf.hooks] == ["fc.weight"]


def test_an_algorithm_that_finds_nothing_leaves_the_model_as_it_was() -> None:
    model = Net()
    with pytest.raises(CompressionError):
        create_compressed_model(
            model,
            {"compression": [MAGNITUDE, PRUNING | {"target_scopes": ["Net/Linear[fc]"]}]},
            INPUTS,
        )
    assert type(model) is Net


def test_a_compression_state_restores_level_and_epoch() -> None:
    config = {"compression": MAGNITUDE}
    controller, network = create_compressed_model(Net(), config, INPUTS)
    for _ in range(3):
        controller.scheduler.epoch_step()
    state = controller.state_dict()
    again, other = create_compressed_model(Net(), config, INPUTS, compression_state=state)
    other.load_state_dict(network.state_dict())
    assert again.level == controller.level > 0
    assert again.scheduler.current_epoch == 2
    assert torch.equal(other(INPUTS), network(INPUTS))


def test_the_state_of_another_algorithm_is_refused() -> None:
    controller, _ = create_compressed_model(Net(), {"compression": PRUNING}, INPUTS)
    model = Net()
    with pytest.raises(StorageError, match=r"missing \['magnitude_sparsity'\]"):
        create_compressed_model(
            model, {"compression": MAGNITUDE}, INPUTS, compression_state=controller.state_dict()
        )
    assert type(model) is Net


def test_positional_inputs_before_a_named_one_take_the_forwards_names() -> None:
    infos = (InputInfo(sample_size=(1, 3)), InputInfo(sample_size=(2,), keyword="scale"))
    inputs = example_inputs_of(infos, Net())
    assert {name: tuple(one.shape) for name, one in inputs.items()} == {
        "image": (1, 3),
        "scale": (2,),
    }


@pytest.mark.parametrize(
    ("kind", "filler", "values"),
    [
        ("long", "ones", {1}),
        ("long", "zeros", {0}),
        ("bool", "ones", {True}),
        ("int", "random", {0, 1}),
    ],
)
def test_inputs_are_filled_as_asked(kind: str, filler: str, values: set[int]) -> None:
    info = InputInfo.from_dict({"sample_size": [50], "type": kind, "filler": filler})
    (made,) = example_inputs_of((info,), Net())
    assert set(made.tolist()) == values


def test_training_a_real_model_with_both_algorithms_lowers_its_loss() -> None:
    torch.manual_seed(0)
    config = {
        "compression": [
            MAGNITUDE | {"params": {"sparsity_target": 0.5, "sparsity_target_epoch": 1}},
            {"algorithm": "filter_pruning", "params": {"schedule": "baseline"}},
        ]
    }
    images, labels = torch.randn(8, 3, 32, 32), torch.arange(8) % 10
    controller, model = create_compressed_model(resnet20_cifar10(), config, images[:1])
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        controller.scheduler.epoch_step()
        for _ in range(3):
            controller.scheduler.step()
            loss = nn.functional.cross_entropy(model(images), labels) + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]
    statistics = controller.statistics().to_dict()
    assert statistics["magnitude_sparsity"]["level"] == pytest.approx(0.5, abs=1e-4)
    assert 0.45 < statistics["filter_pruning"]["level"] <= 0.5


@pytest.mark.parametrize("scope", ["NNCFConv2d[0]", "{re}NNCFConv2d\\[0\\]"])
def test_scopes_of_modules_that_nncf_exchanged_mean_the_modules(scope: str) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1))
    path = scope if "{re}" in scope else f"Sequential/{scope}/conv2d_0"
    item = {"algorithm": "magnitude_sparsity", "ignored_scopes": [path]}
    controller, _ = create_compressed_model(model, {"compression": item}, torch.ones(1, 3, 2, 2))
    assert [layer.name for layer in controller.statistics().layers] == ["1.weight"]


def test_an_algorithm_that_can_only_be_read_is_refused_before_anything_changes() -> None:
    model = nn.Linear(2, 2)
    read_only = type("ReadOnly", (AlgorithmConfig,), {"algorithm": "read_only"})
    items = [{"algorithm": "magnitude_sparsity"}, {"algorithm": "read_only"}]
    register_algorithm_config(read_only)
    try:
        with pytest.raises(
            ConfigError, match=r"compression\[1\].algorithm: 'read_only' can be read"
        ):
            create_compressed_model(model, {"compression": items}, torch.ones(1, 2))
    finally:
        unregister_algorithm_config("read_only")
    assert type(model) is nn.Linear


def test_scopes_of_the_whole_config_do_not_concern_distillation() -> None:
    items = [
        {"algorithm": "magnitude_sparsity"},
        {"algorithm": "knowledge_distillation", "type": "mse"},
    ]
    config = {"compression": items, "ignored_scopes": "{re}Linear.1"}
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    controller, _ = create_compressed_model(model, config, torch.ones(1, 2))
    assert len(controller.statistics()["magnitude_sparsity"].layers) == 1


def test_a_multiplier_of_the_whole_config_holds_where_there_is_none() -> None:
    config = {"compression": {"algorithm": "rb_sparsity"}, "compression_lr_multiplier": 10}
    controller, _ = create_compressed_model(nn.Linear(2, 2), config, torch.ones(1, 2))
    assert [group["lr"] for group in controller.parameter_groups(lr=0.5)] == [0.5, 5.0]


def test_a_target_device_that_changes_nothing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    config = {"target_device": "CPU", "compression": {"algorithm": "magnitude_sparsity"}}
    create_compressed_model(nn.Sequential(nn.Linear(4, 4)), config, torch.ones(1, 4))
    assert "target_device is 'CPU' and changes nothing here" in caplog.text


@pytest.mark.parametrize(
    ("device", "target"),
    [("ANY", "onnxruntime"), ("CPU", "onnxruntime"), ("GPU", "tensorrt"), ("NPU", "openvino")],
)
def test_the_target_device_chooses_the_rules_of_quantization(
    device: str, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"target_device": device, "compression": {"algorithm": "quantization", **UNSEEN}}
    controller, _ = create_compressed_model(nn.Linear(4, 4), config, torch.ones(1, 4))
    assert controller.statistics().to_dict()["target"] == target
    assert "target_device" not in caplog.text


def test_a_target_of_its_own_goes_before_the_target_device() -> None:
    item = {"algorithm": "quantization", "target": "tensorrt", **UNSEEN}
    config = {"target_device": "CPU", "compression": item}
    controller, _ = create_compressed_model(nn.Linear(4, 4), config, torch.ones(1, 4))
    assert controller.statistics().to_dict()["target"] == "tensorrt"


def test_a_pruning_level_above_its_target_is_told_and_falls_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    params = {"pruning_target": 0.25, "pruning_steps": 3, "prune_first_conv": True, "align": 1}
    item = {"algorithm": "filter_pruning", "pruning_init": 0.75, "params": params}
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    controller, _ = create_compressed_model(model, {"compression": item}, torch.ones(1, 3, 8, 8))
    assert "starts at the level 0.75, above its target 0.25" in caplog.text
    levels = [controller.level]
    for _ in range(2):
        controller.scheduler.epoch_step()
        levels.append(controller.level)
    assert levels == [0.75, 0.25, 0.25]


def test_batch_norms_that_have_seen_no_batch_are_told(caplog: pytest.LogCaptureFixture) -> None:
    config = {"compression": {"algorithm": "quantization", **UNSEEN}}
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    _, network = create_compressed_model(model, config, torch.randn(2, 3, 8, 8))
    assert caplog.text.count("Batch norms that have seen no batch: 1, the first '1'.") == 1
    caplog.clear()
    weights_only = config["compression"] | {"activations": {"ignored_scopes": ["{re}.*"]}}
    create_compressed_model(
        unwrap(network), {"compression": weights_only}, torch.randn(2, 3, 8, 8)
    )
    assert "seen no batch" not in caplog.text
    model = unwrap(network)
    model.train()(torch.randn(2, 3, 8, 8))
    create_compressed_model(model, config, torch.randn(2, 3, 8, 8))
    assert "seen no batch" not in caplog.text


class Keeps(nn.Module):
    """Keeps what it computed, as models do for an auxiliary loss or a map of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.hidden = self.inner(x).relu()
        return self.outer(self.hidden)


@pytest.mark.parametrize(
    "item",
    [MAGNITUDE, {"algorithm": "lc"}, {"algorithm": "knowledge_distillation", "type": "mse"}],
    ids=lambda item: item["algorithm"],
)
def test_a_model_that_keeps_what_it_computed_is_compressed(item: dict[str, str]) -> None:
    keeps, inputs = Keeps(), torch.randn(2, 8)
    expected = keeps(inputs)
    controller, model = create_compressed_model(keeps, {"compression": item}, inputs)
    model.train()
    assert torch.equal(model(inputs), expected)
    assert float(controller.loss().detach()) == 0


def narrow() -> Function:
    """Has layers of no width, as a configuration may ask for; they give a bias."""
    return Function(
        lambda m, x: m.wide(x) + m.none(x),
        wide=nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)),
        none=nn.Sequential(nn.Linear(4, 0), nn.Linear(0, 3)),
    )


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors", "ignore:The activation at")
@pytest.mark.parametrize(
    "item",
    [
        MAGNITUDE | {"sparsity_init": 0.5},
        {"algorithm": "filter_pruning", "pruning_init": 0.5},
        {"algorithm": "quantization"},
    ],
    ids=lambda item: item["algorithm"],
)
def test_layers_of_no_width_are_left_alone(item: dict[str, Any]) -> None:
    inputs = torch.randn(5, 4)
    controller, model = create_compressed_model(
        narrow(), {"compression": item}, inputs, calibration_batches=[inputs]
    )
    assert controller.statistics().to_dict()
    assert controller.level == item.get("sparsity_init", item.get("pruning_init", 0))
    assert {str(one.site) for one in model.nncf.hooks}.isdisjoint(
        ("none.0.weight", "none.1.weight")
    )
    assert controller.strip()(inputs).shape == (5, 3)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors", "ignore:The activation at")
def test_a_model_with_layers_of_no_width_is_quantized_all_ways() -> None:
    model, inputs = narrow().eval(), torch.randn(64, 4)
    for quantized in (
        nncfx.quantize(model, [inputs]),
        nncfx.quantize(model, [inputs], preset="thorough", weight_bits=4),
        nncfx.quantize_weights(model, example_inputs=inputs),
    ):
        error = (quantized(inputs) - model(inputs)).norm() / model(inputs).norm()
        assert 0 < float(error.detach()) < 0.2


@pytest.mark.parametrize("algorithm", ["magnitude_sparsity", "quantization"])
def test_what_is_made_in_inference_mode_trains_as_ever(algorithm: str) -> None:
    inputs = torch.ones(2, 4)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.inference_mode():
        controller, _ = create_compressed_model(
            model, {"compression": {"algorithm": algorithm}}, inputs, calibration_batches=[inputs]
        )
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    model(inputs).sum().backward()
    assert all(one.grad is not None for one in model.parameters())


def test_a_model_that_was_made_in_inference_mode_is_refused_with_the_fix() -> None:
    inputs, config = torch.ones(2, 4), {"compression": {"algorithm": "magnitude_sparsity"}}
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(ArgumentError, match=r"'0\.weight' was made in .*deepcopy"):
        create_compressed_model(model, config, inputs)
    create_compressed_model(copy.deepcopy(model), config, inputs)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Linear(4, 4, device="meta"), ArgumentError, r"'weight' is on meta.*to_empty"),
        (lambda: nn.LazyLinear(4), TracingError, "parameters have no shape yet"),
        (lambda: "model.pt", ArgumentError, "takes an nn.Module, not a str"),
    ],
)
def test_what_holds_no_numbers_is_refused(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    with pytest.raises(error, match=message):
        create_compressed_model(make(), config, torch.ones(2, 4, device="meta"))


@pytest.mark.parametrize("method", ["plan", "controller"])
def test_a_builder_that_returns_nothing_is_told(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    builder = type(builder_for(NNCFConfig.from_dict(config).compression[0]))
    monkeypatch.setattr(builder, method, lambda *_: None)
    with pytest.raises(
        ArgumentError, match=rf"MagnitudeSparsityBuilder.{method}\(\) returned a NoneType; it must"
    ):
        create_compressed_model(nn.Linear(2, 2), config, torch.ones(1, 2))


def test_a_controller_without_a_scheduler_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unscheduled(Controller):
        def statistics(self) -> Statistics:
            raise NotImplementedError

    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    builder = type(builder_for(NNCFConfig.from_dict(config).compression[0]))
    monkeypatch.setattr(builder, "controller", lambda _, model, __: Unscheduled(model, "own", []))
    with pytest.raises(
        ArgumentError, match=r"Unscheduled has no scheduler\. Set .* has_level = F"
    ):
        create_compressed_model(nn.Linear(2, 2), config, torch.ones(1, 2))
