"""Models into files and back, bit for bit."""

import copy
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from safetensors.torch import load_file
from torch import nn

from nncfx.errors import ArgumentError, StorageError
from nncfx.storage.models.model_file import load, load_state, save

DATA = Path(os.environ.get("NNCFX_DATA", Path(__file__).parents[4] / "shared" / "data"))


def same_bits(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    def raw(tensor: torch.Tensor) -> bytes:
        flat = tensor.detach().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""

    return list(a) == list(b) and all(
        (a[key].dtype, a[key].shape, raw(a[key])) == (b[key].dtype, b[key].shape, raw(b[key]))
        for key in a
    )


def pruned(model: nn.Module, level: float) -> nn.Module:
    """Return `model` with its convolutions and linears pruned and rounded to fp16."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            threshold = parameter.detach().abs().flatten().quantile(level)
            kept = torch.where(parameter.abs() >= threshold, parameter, 0.0)
            parameter.data = kept.half().float()
    return model


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))


def filled(model: nn.Module, start: float) -> nn.Module:
    for index, value in enumerate(model.state_dict().values()):
        value.fill_(start + index)
    return model


def test_a_real_model_comes_back_bit_for_bit(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = resnet20_cifar10()
    saved = save(tmp_path / "a.nncfx", model)
    assert saved.size_bytes == (tmp_path / "a.nncfx").stat().st_size
    again = load(tmp_path / "a.nncfx", filled(resnet20_cifar10(), 3.0))
    assert same_bits(again.state_dict(), model.state_dict())


def test_a_pruned_fp16_model_of_fp32_tensors_is_small_and_exact(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = pruned(resnet20_cifar10(), 0.9)
    dense = sum(4 * value.numel() for value in model.state_dict().values())
    saved = save(tmp_path / "a.nncfx", model)
    # fp16 values at 10 %: at most 1.6 + 0.5 bits a weight, and batch norm in full
    assert dense / saved.size_bytes > 15
    again = load(tmp_path / "a.nncfx", resnet20_cifar10())
    assert same_bits(again.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    "name",
    ["lenet300_100_mnist", "resnet20_cifar10_optA", "resnet20_cifar10_optB_zeroed_channels"],
)
def test_trained_weights_come_back_bit_for_bit(name: str, tmp_path: Path) -> None:
    path = DATA / "weights" / f"{name}.safetensors"
    if not path.exists():
        pytest.skip(f"needs the weights at {path} (or set NNCFX_DATA)")
    state = load_file(path)
    holder = nn.Module()
    for key, value in state.items():
        holder.register_buffer(key.replace(".", "-"), value)
    save(tmp_path / "a.nncfx", holder, signed_zeros=True)
    found = load_state(tmp_path / "a.nncfx")
    assert same_bits(found, {key.replace(".", "-"): value for key, value in state.items()})


def test_every_dtype_comes_back(tmp_path: Path) -> None:
    holder = nn.Module()
    numbers = torch.tensor([0.0, -1.5, 3.0, 0.0])
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    ):
        holder.register_buffer(str(dtype).replace(".", "_"), numbers.to(dtype))
    holder.register_buffer("u8", torch.tensor([[0, 255]], dtype=torch.uint8))
    holder.register_buffer("u16", torch.tensor([65535], dtype=torch.uint16))
    holder.register_buffer("nan", torch.tensor([float("nan"), -0.0, float("inf")]))
    holder.register_buffer("empty", torch.zeros(0, 3))
    holder.register_buffer("strided", torch.arange(12.0).reshape(3, 4).T)
    save(tmp_path / "a.nncfx", holder, signed_zeros=True)
    assert same_bits(load_state(tmp_path / "a.nncfx"), holder.state_dict())


def test_half_a_model_stays_half_in_a_float_model(tmp_path: Path) -> None:
    model = small().half()
    save(tmp_path / "a.nncfx", model)
    again = load(tmp_path / "a.nncfx", small())
    assert same_bits(again.state_dict(), model.state_dict())


def test_a_dtype_casts_the_floating_tensors_only(tmp_path: Path) -> None:
    save(tmp_path / "a.nncfx", small().half())
    again = load(tmp_path / "a.nncfx", small(), dtype=torch.float32)
    assert {value.dtype for value in again.state_dict().values()} == {torch.float32, torch.int64}
    assert torch.equal(again[0].weight, small().half().float()[0].weight)


def test_tied_tensors_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        model = nn.ModuleDict({"a": nn.Linear(100, 100), "b": nn.Linear(100, 100)})
        model["b"].weight = model["a"].weight
        return model

    model = tied()
    loose = nn.ModuleDict({"a": nn.Linear(100, 100), "b": nn.Linear(100, 100)})
    size = save(tmp_path / "a.nncfx", model).size_bytes
    assert size < 0.6 * save(tmp_path / "b.nncfx", loose).size_bytes
    again = load(tmp_path / "a.nncfx", tied())
    assert again["a"].weight is again["b"].weight
    assert same_bits(again.state_dict(), model.state_dict())


class Thinnable(nn.Module):
    """A network with its width in every kind of place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3)
        self.norm = nn.BatchNorm2d(width)
        self.depthwise = nn.Conv2d(width, width, 3, groups=width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.5))
        self.last = nn.Linear(width, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.depthwise(self.norm(self.first(x)).relu()) * self.scale
        return self.last(x.mean((2, 3)))


def test_a_thin_model_loads_into_the_original_class_and_runs(tmp_path: Path) -> None:
    thin = Thinnable(5).eval()
    save(tmp_path / "a.nncfx", thin)
    again = load(tmp_path / "a.nncfx", Thinnable(16)).eval()
    assert same_bits(again.state_dict(), thin.state_dict())
    assert (again.norm.num_features, again.depthwise.groups, again.last.in_features) == (5, 5, 5)
    inputs = torch.randn(2, 3, 9, 9)
    assert torch.equal(again(inputs), thin(inputs))


def test_a_loaded_model_trains_on(tmp_path: Path) -> None:
    save(tmp_path / "a.nncfx", Thinnable(5))
    model = Thinnable(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 3, 9, 9)).sum().backward()
    load(tmp_path / "a.nncfx", model)
    before = model.first.weight.detach().clone()
    model(torch.randn(2, 3, 9, 9)).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model.first.weight, before)


def float_counter() -> nn.Module:
    model = Thinnable(5)
    model.norm.num_batches_tracked = torch.tensor(0.0)
    return model


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (lambda: Thinnable(4), r"reshaped: .*first.weight .*file F32 \(5, 3, 3, 3\)"),
        (lambda: nn.Linear(5, 5), r"missing in the file: bias, weight \(2\)"),
        (lambda: nn.Sequential(Thinnable(5)), r"unexpected: .*\(12\)"),
        (float_counter, r"reshaped: norm.num_batches_tracked .*model torch.float32"),
        (lambda: Thinnable(5).to("meta"), "to_empty"),
    ],
)
def test_another_model_is_refused_and_left_alone(
    other: Callable[[], nn.Module], words: str, tmp_path: Path
) -> None:
    save(tmp_path / "a.nncfx", Thinnable(5))
    model = other()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(StorageError, match=words):
        load(tmp_path / "a.nncfx", model)
    if not any(value.is_meta for value in before.values()):
        assert same_bits(model.state_dict(), before)


def test_masked_weights_are_lossless_with_their_signs_and_small_without(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(300, 300, bias=False)
    model.weight.data = (model.weight * (torch.rand(300, 300) < 0.1)).half().float()
    exact = save(tmp_path / "a.nncfx", model, signed_zeros=True)
    assert same_bits(load_state(tmp_path / "a.nncfx"), model.state_dict())
    folded = save(tmp_path / "a.nncfx", model)
    assert folded.size_bytes < 0.8 * exact.size_bytes
    assert torch.equal(load_state(tmp_path / "a.nncfx")["weight"], model.weight)


class _WithExtra(nn.Linear):
    def get_extra_state(self) -> object:
        return {"a": 1}

    def set_extra_state(self, state: object) -> None:
        pass


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda: _WithExtra(1, 1), "'_extra_state' in the state_dict is a dict"),
        (lambda: nn.LazyLinear(3), "is a UninitializedParameter"),
        (lambda: nn.Linear(2, 2, device="meta"), "on meta"),
        (lambda: nn.Linear(2, 2, dtype=torch.complex128), "torch.complex128"),
    ],
)
def test_what_a_file_cannot_hold_is_refused_by_name(
    model: Callable[[], nn.Module], words: str, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match=words):
        save(tmp_path / "a.nncfx", model())
    assert list(tmp_path.iterdir()) == []


def test_a_bool_that_is_neither_is_refused(tmp_path: Path) -> None:
    holder = nn.Module()
    holder.register_buffer("mask", torch.tensor([True, False, True] * 7))
    save(tmp_path / "a.nncfx", holder, signed_zeros=True)
    holder.mask.view(torch.uint8)[3] = 2
    save(tmp_path / "b.nncfx", holder)
    with pytest.raises(StorageError, match="neither 0 nor 1"):
        load_state(tmp_path / "b.nncfx")


def test_saving_over_a_file_replaces_it_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.nncfx"
    path.write_bytes(b"old")
    save(path, small())
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.nncfx"]
    load(path, small())


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    save(tmp_path / "a.nncfx", small())
    save(tmp_path / "b.nncfx", small())
    assert (tmp_path / "a.nncfx").read_bytes() == (tmp_path / "b.nncfx").read_bytes()


def test_a_damaged_file_never_changes_the_model(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "a.nncfx"
    save(path, small())
    good = path.read_bytes()
    model = filled(small(), 1.0)
    for _ in range(100):
        data = bytearray(good)
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(StorageError):
            load(path, model)
    assert same_bits(model.state_dict(), filled(small(), 1.0).state_dict())


@pytest.mark.parametrize("suffix", ["safetensors", "onnx", "pt"])
def test_a_name_of_another_format_is_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(ArgumentError, match=r"ending of another format.* Name it 'm.nncfx'"):
        save(tmp_path / f"m.{suffix}", nn.Linear(2, 2))
    assert list(tmp_path.iterdir()) == []


def test_a_model_in_the_place_of_the_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"Write save\(path, model\)"):
        save(nn.Linear(2, 2), str(tmp_path / "m.nncfx"))  # type: ignore[arg-type]  # the mistake
