"""Targets: found by name, by file or by device, and valid by construction."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx import export, targets
from nncfx.errors import ArgumentError
from nncfx.export import reorder_channels
from nncfx.runtimes import RUNTIMES
from nncfx.targets import TARGETS, Target, target_named
from nncfx.thinning import thin


def test_an_unknown_target_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ArgumentError, match=r"no target 'onnx_runtime'.*'onnxruntime'\?"):
        target_named("onnx_runtime")


@pytest.mark.parametrize("name", targets.names())
def test_a_target_is_named_after_its_runtime_and_survives_json_and_pickle(name: str) -> None:
    target = target_named(name)
    assert target.name == name
    assert target.runtime in {None, *RUNTIMES}
    assert target.runtime is None or name.split("-", maxsplit=1)[0] == target.runtime
    assert Target.from_json(target.to_json()) == target
    assert pickle.loads(pickle.dumps(target)) == target  # noqa: S301 (our own)


def test_names_of_before_are_read() -> None:
    assert target_named("onnxruntime_avx2") is TARGETS["onnxruntime-avx2"]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("ANY", "onnxruntime"),
        ("CPU", "onnxruntime"),
        ("CPU_SPR", "onnxruntime"),
        ("TRIAL", "onnxruntime"),
        ("GPU", "tensorrt"),
        ("NPU", "openvino"),
    ],
)
def test_every_device_of_a_config_is_one_target(device: str, name: str) -> None:
    assert [one.name for one in TARGETS.values() if device in one.devices] == [name]
    assert targets.target_of_device(device) == name


def test_what_is_missing_is_told_with_the_reason_and_those_that_have_it(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError,
        match=r"'torch' has no ONNX files: torch runs the model itself. Use one of onnxruntime, ",
    ):
        nncfx.export_onnx(nn.Linear(2, 2), tmp_path / "m.onnx", torch.ones(1, 2), "torch")
    with pytest.raises(ArgumentError, match="'vta' has no widths that suit it"):
        thin(nn.Linear(2, 2), torch.ones(1, 2), align="vta")
    with pytest.raises(ArgumentError, match="'torch' has no integer kernels"):
        targets.hardware_named("torch")


def test_a_runtime_without_known_costs_is_told_and_copies_whatever_that_costs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x = torch.ones(1, 3, dtype=torch.float64)
    assert "no GPU was at hand" in reorder_channels(model, x, target="tensorrt").note
    with pytest.raises(ArgumentError, match="There is no target 'abacus'"):
        reorder_channels(model, x, target="abacus")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": ""}, "is empty or reads as a file. Write the runtime"),
        ({"name": "chip.json"}, "is empty or reads as a file"),
        ({"newest_opset": 20}, "opset 21 and newest_opset 20.*in order, or neither"),
        ({"newest_opset": None}, "opset 21 and newest_opset None"),
        ({"missing": {"wings": "it is no bird"}}, "'wings' is missing.*Parts are alignment"),
        ({"workarounds": ("add_fusion_bariers",)}, "the workaround 'add_fusion_bariers'"),
    ],
)
def test_a_target_that_makes_no_sense_is_refused(change: dict[str, object], fault: str) -> None:
    data = json.loads(TARGETS["openvino"].to_json()) | change
    data = {name: one for name, one in data.items() if one is not None}
    with pytest.raises(ArgumentError, match=fault):
        Target.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "target description is not JSON.*Target.to_json"),
        ("{}", r"\$.name is missing"),
        (
            '{"name": "x", "alignment": {"multiple": "16"}}',
            r"\$.alignment.multiple is '16'; a whole number",
        ),
        ('{"name": "x", "alignment": {"multiple": 0}}', "align is 0"),
        ('{"name": "x", "wings": 2}', r"\$.wings is not a field of Target"),
    ],
)
def test_a_damaged_description_is_refused_with_the_place(text: str, fault: str) -> None:
    with pytest.raises(ArgumentError, match=fault):
        Target.from_json(text)


def test_a_file_of_before_is_read_under_its_old_words() -> None:
    target = TARGETS["onnxruntime"]
    text = target.to_json()
    for new, old in {
        "space_to_depth_stem": "image_blocks",
        "add_fusion_barriers": "fence_floats",
    }.items():
        assert f'"{new}"' in text
        text = text.replace(f'"{new}"', f'"{old}"')
    assert Target.from_json(text) == target


def test_a_file_stands_for_the_target_that_it_describes_everywhere(tmp_path: Path) -> None:
    data = json.loads(TARGETS["tensorrt"].to_json()) | {"name": "my-chip"}
    data["alignment"] = {"multiple": 5}
    file = tmp_path / "chip.json"
    file.write_text(json.dumps(data))
    x = torch.randn(4, 8)
    model = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 2))
    model[2].weight.data[:, :4] = 0
    assert thin(model, x, align=str(file)).model[0].out_features == 10
    config = {"compression": {"algorithm": "quantization", "target": str(file)}}
    _, trained = nncfx.create_compressed_model(model, config, x, calibration_batches=[x])
    result = nncfx.export_onnx(trained, tmp_path / "a.onnx", target=str(file))
    assert result.target == "my-chip"
    assert export.qdq_violations(result, str(file)) == ()  # symmetric, as TensorRT wants it
    assert export.qdq_violations(result, TARGETS["tensorrt"]) == ()
    with pytest.raises(ArgumentError, match=r"cannot be read.*Target.to_json"):
        target_named(str(tmp_path / "none.json"))


def test_the_public_names_are_sorted() -> None:
    assert sorted(export.__all__, key=lambda name: (not name.isupper(), name)) == export.__all__
