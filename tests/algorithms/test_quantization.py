"""Quantization as a config algorithm: NNCF's grammar, applied."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.algorithms import QuantizationController
from nncfx.controllers import CompressionStage
from nncfx.errors import ArgumentError, CompressionError, ConfigError
from nncfx.network import NNCFNetwork
from small_models import Function

EXAMPLE = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        return self.fc(self.deep(x).relu().mean((2, 3)))


def fresh() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def applied(
    item: dict[str, Any] | None = None,
    batches: list[Tensor] | None = None,
    example: Tensor = EXAMPLE,
    **keys: Any,  # noqa: ANN401 (of a config)
) -> tuple[QuantizationController, NNCFNetwork]:
    item = {"algorithm": "quantization"} | (item or {}) | keys
    controller, model = nncfx.create_compressed_model(
        fresh(), {"compression": item}, example, calibration_batches=batches or [EXAMPLE]
    )
    return controller, model


def statistics(**keys: Any) -> dict[str, Any]:  # noqa: ANN401 (of a config)
    controller, _ = applied(**keys)
    return {one.name: one for one in controller.statistics().quantizers}


CONV, DEEP = "Net/Conv2d[conv]/conv2d_0", "Net/Conv2d[deep]/conv2d_0"


def test_by_default_all_is_quantized_symmetrically_in_eight_bits_from_the_start() -> None:
    controller, model = applied()
    found = controller.statistics()
    assert {(one.bits, one.mode, one.is_active) for one in found.quantizers} == {
        (8, "symmetric", True)
    }
    assert not torch.equal(model(EXAMPLE), fresh()(EXAMPLE))
    assert torch.allclose(model(EXAMPLE), fresh()(EXAMPLE), atol=0.01)
    assert controller.compression_stage() is CompressionStage.FULLY_COMPRESSED


def test_the_mixed_preset_has_asymmetric_activations() -> None:
    modes = {(one.role, one.mode) for one in statistics(preset="mixed").values()}
    assert modes == {("activation", "asymmetric"), ("weight", "symmetric")}


def test_a_mode_goes_before_the_preset() -> None:
    found = statistics(preset="mixed", activations={"mode": "symmetric"})
    assert {one.mode for one in found.values()} == {"symmetric"}


def test_sections_and_overrides_give_bits() -> None:
    found = statistics(
        weights={"bits": 4, "per_channel": False},
        activations={"bits": 6},
        scope_overrides={"weights": {DEEP: {"bits": 3, "per_channel": True}}},
    )
    assert (found[f"{CONV}|WEIGHT"].bits, found[f"{CONV}|WEIGHT"].scales) == (4, 1)
    assert (found[f"{DEEP}|WEIGHT"].bits, found[f"{DEEP}|WEIGHT"].scales) == (3, 8)
    assert {one.bits for one in found.values() if one.role == "activation"} == {6}


def test_scopes_of_a_section_hold_for_its_role_only() -> None:
    found = statistics(weights={"ignored_scopes": [CONV]})
    assert f"{CONV}|WEIGHT" not in found
    assert f"{CONV}|INPUT0" in found
    found = statistics(weights={"target_scopes": [CONV]})
    assert [name for name in found if name.endswith("WEIGHT")] == [f"{CONV}|WEIGHT"]


def test_manual_precision_gives_bits_by_the_name_of_the_quantizer() -> None:
    precision = {
        "type": "manual",
        "bitwidth_per_scope": [[2, f"{DEEP}|WEIGHT"], [4, "Net/relu_0|OUTPUT"]],
    }
    found = statistics(initializer={"precision": precision})
    assert found[f"{DEEP}|WEIGHT"].bits == 2
    assert found["Net/relu_0|OUTPUT0"].bits == 4
    assert found[f"{CONV}|WEIGHT"].bits == 8


def test_manual_precision_of_an_unknown_quantizer_is_an_error() -> None:
    precision = {"type": "manual", "bitwidth_per_scope": [[2, "Net/Conv2d[deap]/conv2d_0|WEIGHT"]]}
    with pytest.raises(CompressionError, match=r"Did you mean 'Net/Conv2d\[deep\]/conv2d_0\|W"):
        applied(initializer={"precision": precision})


@pytest.mark.parametrize("entry", [[f"{DEEP}|WEIGHT", 2], [2, f"{DEEP}|WEIGHT", 3], ["2", DEEP]])
def test_manual_precision_in_another_form_is_an_error(entry: list[Any]) -> None:
    precision = {"type": "manual", "bitwidth_per_scope": [[2, f"{CONV}|WEIGHT"], entry]}
    with pytest.raises(
        ConfigError, match=r"bitwidth_per_scope\[1\]: .* is not a pair of a width, 2 to 16, and"
    ):
        applied(initializer={"precision": precision})


def test_keys_of_hawq_beside_manual_bits_are_told(caplog: pytest.LogCaptureFixture) -> None:
    manual = {"type": "manual", "bitwidth_per_scope": [[2, f"{DEEP}|WEIGHT"]]}
    statistics(initializer={"precision": manual})
    assert "do nothing" not in caplog.text
    statistics(initializer={"precision": manual | {"iter_number": 7, "bits": [4, 8]}})
    assert "bits, iter_number do nothing" in caplog.text


def test_hawq_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="'hawq' can be read, but is not implemented"):
        applied(initializer={"precision": {"type": "hawq"}})


def test_ranges_are_found_by_the_entry_that_holds_for_a_quantizer() -> None:
    wide = applied(initializer={"range": {"type": "min_max"}})[1]
    entries = [
        {"type": "min_max", "target_quantizer_group": "weights"},
        {
            "type": "percentile",
            "params": {"min_percentile": 10, "max_percentile": 90},
            "target_quantizer_group": "activations",
        },
    ]
    narrow = applied(initializer={"range": entries})[1]
    scales = [
        {str(one.site): one.hook.scale.detach() for one in model.nncf.hooks}  # type: ignore[union-attr, operator]  # quantizers
        for model in (wide, narrow)
    ]
    assert torch.equal(scales[0]["conv.weight"], scales[1]["conv.weight"])
    assert scales[1]["Net/relu_0|OUTPUT0"] < scales[0]["Net/relu_0|OUTPUT0"]


@pytest.mark.parametrize("entries", [[{"type": "min_max"}] * 2, [{"target_scopes": CONV}]])
def test_a_quantizer_for_which_no_or_several_entries_hold_is_an_error(entries: list[Any]) -> None:
    with pytest.raises(CompressionError, match=r"entries of 'initializer.range' apply"):
        applied(initializer={"range": entries})


@pytest.mark.parametrize(
    ("place", "keys"),
    [
        ("weights.ignored_scopes[0]", {"weights": {"ignored_scopes": ["zz"]}}),
        ("activations.ignored_scopes[0]", {"activations": {"ignored_scopes": ["zz"]}}),
        (
            "activations.unified_scale_ops[0][1]",
            {"activations": {"unified_scale_ops": [[CONV, "zz"]]}},
        ),
        ("scope_overrides.weights.zz", {"scope_overrides": {"weights": {"zz": {"bits": 4}}}}),
        (
            "initializer.range[1].ignored_scopes[0]",
            {
                "initializer": {
                    "range": [
                        {"type": "min_max", "target_quantizer_group": "weights"},
                        {"target_quantizer_group": "activations", "ignored_scopes": ["zz"]},
                    ]
                }
            },
        ),
    ],
)
def test_every_scope_that_matches_nothing_is_told_with_its_place_or_allowed(
    place: str, keys: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"compression[0].{place}: 'zz' matches no")):
        applied(keys)
    assert f"{CONV}|WEIGHT" in statistics(**keys, validate_scopes=False)


def test_scopes_of_modules_that_nncf_exchanged_mean_the_modules_everywhere() -> None:
    old = DEEP.replace("Conv2d", "NNCFConv2d")
    manual = {"type": "manual", "bitwidth_per_scope": [[2, f"{old}|WEIGHT"]]}
    found = statistics(
        scope_overrides={"weights": {old: {"mode": "asymmetric"}}},
        initializer={"precision": manual},
    )
    assert (found[f"{DEEP}|WEIGHT"].bits, found[f"{DEEP}|WEIGHT"].mode) == (2, "asymmetric")


@pytest.mark.parametrize("width", [1, 17, 40])
def test_a_width_that_no_quantizer_has_is_told_with_its_place(width: int) -> None:
    manual = {"type": "manual", "bitwidth_per_scope": [[width, f"{DEEP}|WEIGHT"]]}
    with pytest.raises(ConfigError, match=r"bitwidth_per_scope\[0\]: .* of a width, 2 to 16"):
        applied(initializer={"precision": manual})


def test_percentiles_of_a_type_without_any_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """NNCF takes them without a word."""
    params = {"min_percentile": 20, "max_percentile": 80}
    applied(initializer={"range": {"type": "percentile", "params": params}})
    assert "do nothing" not in caplog.text
    applied(initializer={"range": {"type": "min_max", "params": params}})
    assert "initializer.range[0].params: percentiles do nothing for the type" in caplog.text


def test_relative_entropy_clips_activations_and_no_weights() -> None:
    """At 8 bits clipped weights were most of the error: 15 dB of a network of three layers."""

    def scales(*entries: dict[str, Any]) -> dict[str, Tensor]:
        model = applied(initializer={"range": list(entries)})[1]
        return {str(one.site): one.hook.scale.detach() for one in model.nncf.hooks}  # type: ignore[union-attr, operator]  # quantizers

    weights = {"type": "min_max", "target_quantizer_group": "weights"}
    activations = {"type": "kl", "target_quantizer_group": "activations"}
    both, apart = scales({"type": "kl"}), scales(weights, activations)
    assert all(torch.equal(both[name], apart[name]) for name in both)
    asked = scales(weights | {"type": "kl"}, activations)
    assert not torch.equal(asked["conv.weight"], apart["conv.weight"])


def test_overflow_fix_halves_the_integers_of_weights() -> None:
    def levels(fix: str) -> list[int]:
        model = applied(overflow_fix=fix)[1]
        names = ("conv", "deep")
        peaks = [model.get_submodule(one).weight.detach()[0] for one in names]  # type: ignore[index, operator]  # weights
        hooks = {str(one.site): one.hook for one in model.nncf.hooks}
        return [
            round(float(peak.abs().max() / hooks[f"{name}.weight"].scale[0].detach()))  # type: ignore[union-attr, index, operator]  # quantizers
            for name, peak in zip(names, peaks, strict=True)
        ]

    assert levels("disable") == [127, 127]
    assert levels("first_layer_only") == [63, 127]
    assert levels("enable") == [63, 63]


def test_ranges_come_from_the_batches_not_from_the_example() -> None:
    small = applied(batches=[EXAMPLE])[1]
    large = applied(batches=[10 * EXAMPLE])[1]
    scales = [
        next(one.hook.scale.detach() for one in model.nncf.hooks if "INPUT0" in str(one.site))  # type: ignore[union-attr, operator]  # quantizers
        for model in (small, large)
    ]
    assert torch.allclose(10 * scales[0], scales[1], rtol=0.02)  # bins of a histogram apart


@pytest.mark.parametrize(("bits", "of_weights"), [(8, "min_max"), (4, "mse")])
def test_ranges_that_nothing_asks_for_are_those_of_quantize(bits: int, of_weights: str) -> None:
    item = {"algorithm": "quantization", "weights": {"bits": bits}}
    asked = [
        {"type": "mse", "target_quantizer_group": "activations"},
        {"type": of_weights, "target_quantizer_group": "weights"},
    ]
    models = []
    for ranges in ({}, {"initializer": {"range": {"num_init_samples": 2}}}, None):
        more = {"initializer": {"range": asked}} if ranges is None else ranges
        torch.manual_seed(0)
        models.append(
            nncfx.create_compressed_model(
                fresh(), {"compression": item | more}, EXAMPLE, calibration_batches=[EXAMPLE]
            )[1]
        )
    *found, expected = (model.state_dict() for model in models)
    for one in found:
        assert [name for name in expected if not torch.equal(one[name], expected[name])] == []


def test_a_dead_activation_is_told_once() -> None:
    model = fresh()
    nn.init.constant_(model.deep.bias, -100.0)
    with pytest.warns(UserWarning, match="is zero on all calibration data") as told:
        nncfx.create_compressed_model(
            model,
            {"compression": {"algorithm": "quantization"}},
            EXAMPLE,
            calibration_batches=[EXAMPLE],
        )
    assert len(told) == len({str(one.message) for one in told})


def test_where_data_give_the_ranges_the_example_inputs_give_none() -> None:
    _, model = applied(batches=[EXAMPLE])
    _, other = applied(batches=[EXAMPLE], example=torch.full_like(EXAMPLE, torch.nan))
    for name, one in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], one), name


def test_a_compression_state_asks_for_no_data() -> None:
    controller, model = applied()
    again, other = nncfx.create_compressed_model(
        fresh(),
        {"compression": {"algorithm": "quantization"}},
        torch.full_like(EXAMPLE, torch.nan),
        compression_state=controller.state_dict(),
    )
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(EXAMPLE), model(EXAMPLE))
    assert again.state_dict() == controller.state_dict()


class Rotary(nn.Module):
    """Keeps the cosines of its first forward, as rotary embeddings do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.cosines = nn.Linear(8, 8), None

    def forward(self, x: Tensor) -> Tensor:
        if self.cosines is None:
            self.cosines = torch.arange(8.0).cos()
        return self.fc(x) * self.cosines


def test_what_a_model_keeps_from_its_first_forward_has_a_range() -> None:
    ranges = {"range": {"type": "min_max", "num_init_samples": 4}}
    config = {"compression": {"algorithm": "quantization", "initializer": ranges}}
    x = torch.randn(4, 8)
    controller, _ = nncfx.create_compressed_model(Rotary(), config, x, calibration_batches=[x])
    hook = next(one for one in controller.hooks if "cos" in one.planned.name)
    assert hook.scale.item() == pytest.approx(1 / 127)  # the largest is cos(0)


def test_a_table_that_a_model_keeps_serves_many_steps() -> None:
    """What a training forward keeps must hold nothing of that step's graph."""
    ranges = {"range": {"type": "min_max", "num_init_samples": 4}}
    config = {"compression": {"algorithm": "quantization", "initializer": ranges}}
    x = torch.randn(4, 8)
    controller, model = nncfx.create_compressed_model(Rotary(), config, x, calibration_batches=[x])
    model.cosines = None  # as for another length
    controller.scheduler.epoch_step()
    for _ in range(2):
        (model.train()(x).square().sum() + controller.loss()).backward()
    learned = {one.planned.name: one.peak.grad is not None for one in controller.hooks}
    assert {name for name, is_learned in learned.items() if not is_learned} == {
        "Rotary/cos_0|OUTPUT0"
    }


def test_without_data_it_is_an_error_that_names_the_way_out() -> None:
    with pytest.raises(ArgumentError, match="set 'num_init_samples' of"):
        nncfx.create_compressed_model(
            fresh(), {"compression": {"algorithm": "quantization"}}, EXAMPLE
        )


def test_batches_of_a_generator_serve_ranges_and_batch_norms() -> None:
    item = {
        "algorithm": "quantization",
        "initializer": {
            "range": {"num_init_samples": 8},
            "batchnorm_adaptation": {"num_bn_adaptation_samples": 12},
        },
    }
    model = fresh()
    before = model.norm.running_mean.clone()
    nncfx.create_compressed_model(
        model, {"compression": item}, EXAMPLE, calibration_batches=(EXAMPLE for _ in range(3))
    )
    assert int(model.norm.num_batches_tracked) == 3
    assert not torch.equal(model.norm.running_mean, before)


STAGED = {
    "weights_quant_start_epoch": 1,
    "activations_quant_start_epoch": 2,
    "ranges_freeze_epoch": 3,
    "base_lr": 0.1,
    "base_wd": 0.01,
    "lr_poly_drop_start_epoch": 4,
    "lr_poly_drop_duration_epochs": 10,
    "disable_wd_start_epoch": 5,
    "batch_multiplier": 2,
}


def test_quantizers_start_in_their_epochs() -> None:
    controller, model = applied(params=STAGED)
    plain = fresh()(EXAMPLE)
    stages = []
    for epoch in range(4):
        controller.scheduler.epoch_step()
        active = {one.role for one in controller.statistics().quantizers if one.is_active}
        stages.append((active, controller.compression_stage()))
        assert torch.equal(model(EXAMPLE), plain) == (epoch == 0)
    assert [stage for _, stage in stages] == [0, 1, 2, 2]
    assert stages[1][0] == {"weight"}


@pytest.mark.parametrize(("epochs", "idle"), [(1, "7 of 7"), (2, "4 of 7"), (3, "")])
def test_an_export_before_all_quantizers_have_started_is_told(
    epochs: int, idle: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controller, model = applied(params=STAGED)
    for _ in range(epochs):
        controller.scheduler.epoch_step()
    nncfx.export_onnx(model, tmp_path / "x.onnx", EXAMPLE)
    said = [one for one in caplog.messages if "are switched off" in one]
    assert [one.partition(" quantizers")[0] for one in said] == [idle] * bool(idle)


def test_ranges_stand_still_from_their_epoch_on() -> None:
    controller, model = applied(params=STAGED)
    for _ in range(4):
        controller.scheduler.epoch_step()
    learned = [one for name, one in model.named_parameters() if "_nncf" in name]
    assert learned
    assert not any(one.requires_grad for one in learned)


@pytest.mark.parametrize(
    ("epoch", "lr", "decay"),
    [(0, 0.1, 0.01), (4, 0.1, 0.01), (9, 0.1 * 0.5**0.9, 0.0), (14, 0.0, 0.0), (99, 0.0, 0.0)],
)
def test_the_schedule_says_what_the_optimizer_should_do(
    epoch: int, lr: float, decay: float
) -> None:
    found = applied(params=STAGED)[0].optimizer_settings(epoch)
    assert (found.lr, found.weight_decay) == (pytest.approx(lr), decay)
    assert found.batch_multiplier == 2


def test_training_moves_weights_and_ranges_and_lowers_the_loss() -> None:
    controller, model = applied(weights={"bits": 3}, activations={"bits": 4})
    target = fresh()(EXAMPLE).detach()
    optimizer = torch.optim.Adam(controller.parameter_groups(lr=2e-3))
    learned = {n: p.detach().clone() for n, p in model.named_parameters() if "_nncf" in n}
    losses = []
    model.train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    controller.scheduler.epoch_step()
    for _ in range(60):
        controller.scheduler.step()
        loss = (model(EXAMPLE) - target).square().mean() + controller.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0] / 3
    after = dict(model.named_parameters())
    assert all(not torch.equal(after[name], value) for name, value in learned.items())


def test_signs_found_from_data_are_in_the_controllers_state() -> None:
    controller, model = applied(batches=[EXAMPLE])
    item = {"algorithm": "quantization"}
    other_controller, other = nncfx.create_compressed_model(
        fresh(), {"compression": item}, EXAMPLE.abs(), compression_state=controller.state_dict()
    )
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(EXAMPLE), model(EXAMPLE))
    assert other_controller.state_dict() == controller.state_dict()


def test_it_is_saved_and_loaded(tmp_path: Any) -> None:  # noqa: ANN401 (pytest's)
    controller, model = applied(preset="mixed", weights={"logarithm_scale": True})
    nncfx.save(tmp_path / "model.safetensors", model, controller)
    _, again = nncfx.load(tmp_path / "model.safetensors", fresh())
    assert torch.equal(again.eval()(EXAMPLE), model(EXAMPLE))


def test_what_is_exported_has_constant_grids_and_the_same_values() -> None:
    controller, model = applied(preset="mixed")
    ready = controller.prepare_for_export()
    assert not any("_nncf" in name for name, _ in ready.named_parameters())
    assert torch.allclose(ready(EXAMPLE), model(EXAMPLE), atol=1e-5)


def test_logarithms_of_scales_are_trained_where_asked() -> None:
    _, model = applied(weights={"logarithm_scale": True})
    names = [name for name, _ in model.named_parameters() if "log2_peak" in name]
    assert len(names) == 3


@pytest.mark.parametrize(
    ("range_of", "fault"),
    [
        ({"type": "percentil"}, "type: 'percentil' is not known here"),
        ({"tipe": "kl"}, "tipe: unknown key"),
        (
            {"type": "percentile", "params": {"min_percentile": 90, "max_percentile": 10}},
            "params.min_percentile: 90 is not below 'max_percentile', which is 10",
        ),
    ],
)
def test_a_range_of_a_scope_is_checked_where_the_config_is_read(
    range_of: dict[str, Any], fault: str
) -> None:
    override = {"activations": {CONV: {"initializer": {"range": range_of}}}}
    item = {"algorithm": "quantization", "scope_overrides": override}
    place = f"compression.scope_overrides.activations.{CONV}.initializer.range.{fault}"
    with pytest.raises(ConfigError, match=re.escape(place)):
        nncfx.NNCFConfig.from_dict({"compression": item})


def test_an_initializer_of_a_scope_has_a_range_only() -> None:
    override = {"weights": {CONV: {"initializer": {"precision": {}}}}}
    with pytest.raises(ConfigError, match="an initializer of a scope has 'range' only"):
        applied(scope_overrides=override)


def test_more_bits_than_the_target_has_are_an_error() -> None:
    with pytest.raises(ArgumentError, match="12 bits are asked for"):
        applied(weights={"bits": 12})


def test_it_counts_what_is_quantized_and_says_what_is_not() -> None:
    controller, _ = applied(ignored_scopes=["{function}linear"])
    found = controller.statistics()
    assert f"{CONV}|WEIGHT" in [one.name for one in found.quantizers]
    count = str(sum(one.role == "weight" for one in found.quantizers))
    lines = str(found).splitlines()
    assert ["weight", "8", "symmetric", count, count] in [line.split() for line in lines]
    assert "in float: 1 x linear: it is in the ignored scopes" in lines


def recurrent() -> Function:
    """A recurrent layer before a linear one."""
    return Function(lambda m, x: m.fc(m.gru(x)[0]), gru=nn.GRU(4, 4), fc=nn.Linear(4, 2))


def test_a_recurrent_layer_in_float_is_told_and_what_is_told_stores_its_weights(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = torch.randn(3, 2, 4)
    config = {"target_device": "GPU", "compression": {"algorithm": "quantization"}}
    _, model = nncfx.create_compressed_model(recurrent(), config, x, calibration_batches=[x])
    (told,) = [one for one in caplog.messages if "gru_0 stays in float" in one]
    assert told.endswith("nncfx.quantize_weights, called next, stores its weights in 8 bits")
    stored = nncfx.quantize_weights(model, [x]).nncf.hooks
    assert {"gru.weight_ih_l0", "gru.weight_hh_l0"} <= {str(one.site) for one in stored}


def test_a_state_of_other_bits_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def made(bits: int) -> nn.Module:
        config = {"algorithm": "quantization", "weights": {"bits": bits}}
        x, model = torch.ones(2, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        return nncfx.create_compressed_model(
            model, {"compression": config}, x, calibration_batches=[x]
        )[1]

    state = made(8).state_dict()
    made(8).load_state_dict(state)
    assert "other widths" not in caplog.text
    made(4).load_state_dict(state)
    assert "'Sequential/Linear[0]/linear_0|WEIGHT' 8, here 4 and 1 more" in caplog.text
