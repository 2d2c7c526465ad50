"""Time by layer: every kernel goes to its module, and the sum is the run."""

from pathlib import Path

import pytest
import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet import resnet18
from torch import nn

from nncfx.errors import ArgumentError
from nncfx.export import ExportResult, export_onnx
from nncfx.runtimes import UNATTRIBUTED, compare_profiles, profile_layers


def test_fused_layers_are_their_convolutions(exported: ExportResult, inputs: torch.Tensor) -> None:
    profile = profile_layers(exported, inputs, modules=exported.modules, threads=1)
    modules = [layer.module for layer in profile.layers if layer.module != UNATTRIBUTED]
    # 1 is a batch norm and 2, 4 are ReLUs, all fused; 5 flattens.
    assert modules == ["0", "3", "5", "6"]
    assert profile.ms_of("0") > 0
    assert profile.ms_of("1") == 0


def test_the_total_is_that_of_the_layers(exported: ExportResult, inputs: torch.Tensor) -> None:
    profile = profile_layers(exported, inputs, modules=exported.modules, threads=1, runs=1)
    assert profile.total_ms == pytest.approx(sum(layer.ms for layer in profile.layers))
    assert profile.total_ms <= profile.run_ms  # of one run, its operations and what lies between


def test_without_names_all_time_is_the_runtimes(
    exported: ExportResult, inputs: torch.Tensor
) -> None:
    profile = profile_layers(exported, inputs, modules={}, threads=1)
    assert [layer.module for layer in profile.layers] == [UNATTRIBUTED]


def test_an_odd_number_of_channels_is_attributed_as_well(tmp_path: Path) -> None:
    # Channels that are no multiple of 4 keep ONNX Runtime from its blocked layout, and it fuses
    # differently then.
    model = nn.Sequential(nn.Conv2d(3, 7, 3), nn.ReLU(), nn.Conv2d(7, 5, 3), nn.Flatten())
    model.append(nn.Linear(5 * 4 * 4, 9)).append(nn.ReLU()).append(nn.Linear(9, 3))
    inputs = torch.randn(1, 3, 8, 8)
    result = export_onnx(model, tmp_path / "m.onnx", inputs)
    profile = profile_layers(result, inputs, modules=result.modules, threads=1)
    assert {"0", "2", "4", "6"} <= {layer.module for layer in profile.layers}
    assert profile.ms_of("1") == profile.ms_of("5") == 0


def test_two_files_are_profiled_in_turns(exported: ExportResult, inputs: torch.Tensor) -> None:
    paths = {"a": exported, "b": exported}
    modules = {"a": exported.modules, "b": exported.modules}
    profiles = compare_profiles(paths, inputs, modules=modules, threads=1, runs=3)
    a, b = ([layer.module for layer in profiles[name].layers] for name in "ab")
    assert a == b


@pytest.mark.parametrize("runs", [0, 10_001])
def test_a_number_of_runs_out_of_range_is_refused(
    exported: ExportResult, inputs: torch.Tensor, runs: int
) -> None:
    with pytest.raises(ArgumentError, match=f"runs is {runs}"):
        profile_layers(exported, inputs, modules={}, runs=runs)


def test_a_file_without_names_is_refused(exported: ExportResult, inputs: torch.Tensor) -> None:
    with pytest.raises(ArgumentError, match="'modules' has no entry for 'a'"):
        compare_profiles({"a": exported}, inputs, modules={})


@pytest.mark.slow
@pytest.mark.parametrize("make", [resnet18, mobilenetv2_w1])
def test_every_convolution_of_a_real_network_is_a_layer(make: object, tmp_path: Path) -> None:
    """`benchmarks/layer_times.py` says how well their times add up to the latency."""
    model = make().eval()  # type: ignore[operator]  # pytorchcv has no types
    inputs = torch.randn(1, 3, 224, 224)
    result = export_onnx(model, tmp_path / "m.onnx", inputs, dynamic_batch=False)
    profile = profile_layers(result, inputs, modules=result.modules, threads=1, runs=1)
    convolutions = {name for name, m in model.named_modules() if isinstance(m, nn.Conv2d)}
    assert convolutions <= {layer.module for layer in profile.layers}
