"""Quantized tensors as integers: small, exact, and readable without floats."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import nncfx
from nncfx.errors import StorageError
from nncfx.network import NNCFNetwork
from nncfx.quantization.weight_only import quantize_weights
from nncfx.storage import IntegerTensor, load_state
from nncfx.storage.models.integer_tensor import pack_integers, unpack_integers


@given(st.lists(st.integers(-8, 7), max_size=9), st.sampled_from([3, 4]))
def test_packed_integers_come_back(numbers: list[int], bits: int) -> None:
    numbers = [max(-(2 ** (bits - 1)), min(one, 2 ** (bits - 1) - 1)) for one in numbers]
    for values in (
        torch.tensor(numbers, dtype=torch.int8),
        torch.tensor([abs(one) for one in numbers], dtype=torch.uint8),
    ):
        packed = pack_integers(values, bits)
        assert packed is not None
        assert packed.numel() == (len(numbers) + 1) // 2
        is_signed = values.dtype == torch.int8
        again = unpack_integers(packed, bits, (len(numbers),), signed=is_signed)
        assert torch.equal(again, values)


def test_two_bits_are_four_in_a_byte() -> None:
    packed = pack_integers(torch.tensor([3, 0, 1, 2, 1], dtype=torch.uint8), 2)
    assert packed is not None
    # 3 + 0 * 4 + 1 * 16 + 2 * 64, and 1
    assert packed.tolist() == [147, 1]


def test_other_counts_than_announced_are_refused() -> None:
    with pytest.raises(StorageError, match=r"2 bytes do not hold 5 integers of 4 bits"):
        unpack_integers(torch.zeros(2, dtype=torch.uint8), 4, (5,), signed=True)


def test_groups_are_dequantized_by_hand() -> None:
    # two rows of two groups of two: (q - z) * s
    tensor = IntegerTensor(
        values=torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]], dtype=torch.uint8),
        scale=torch.tensor([1.0, 0.5, 2.0, 0.25]),
        zero_point=torch.tensor([0, 2, 5, 8], dtype=torch.int32),
        bits=4,
        group=2,
    )
    assert tensor.dequantize().tolist() == [[1.0, 2.0, 0.5, 1.0], [0.0, 2.0, -0.25, 0.0]]


# transposed, the rows that are groups are (1, 3) and (2, 4)
@pytest.mark.parametrize(
    "form", [{"bits": 4, "group": 2, "columns": True}, {"bits": 8, "axis": 1}]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_columns_are_dequantized_by_hand(form: dict[str, Any], dtype: torch.dtype) -> None:
    tensor = IntegerTensor(
        values=torch.tensor([[1, 2], [3, 4]], dtype=torch.int8),
        scale=torch.tensor([1.0, 10.0]),
        zero_point=torch.tensor([0, 0], dtype=torch.int32),
        dtype=dtype,
        **form,
    )
    assert tensor.dequantize().tolist() == [[1.0, 20.0], [3.0, 40.0]]
    assert tensor.dequantize().dtype == dtype


def quantized(bits: int, dtype: torch.dtype = torch.float32) -> NNCFNetwork:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64)).to(dtype).eval()
    example = torch.ones(1, 64, dtype=dtype)
    kind = {"bits": bits, "group_size": 32 if bits == 4 else None}
    return quantize_weights(model, **kind, example_inputs=example)  # type: ignore[arg-type]  # of a dict


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["model.nncfx", "model.safetensors"])
def test_integers_are_read_without_floats_and_stand_for_the_same_numbers(
    bits: int, dtype: torch.dtype, name: str, tmp_path: Path
) -> None:
    model = quantized(bits, dtype)
    write = nncfx.storage.save if name.endswith("nncfx") else nncfx.save
    write(tmp_path / name, model)
    whole, floats = load_state(tmp_path / name, integers=True), load_state(tmp_path / name)
    weight = whole["0.weight"]
    assert isinstance(weight, IntegerTensor)
    assert weight.values.dtype == (torch.uint8 if bits == 4 else torch.int8)
    assert weight.values.shape == (96, 64)
    expected = model.get_submodule("0").weight
    hook = model.nncf.hooks[0].hook
    assert torch.equal(weight.scale, hook.scale)
    assert torch.equal(weight.zero_point, hook.zero_point)
    assert torch.equal(weight.dequantize(), hook(expected))
    assert torch.equal(floats["0.weight"], hook(expected))
    assert isinstance(whole["0.bias"], torch.Tensor)


def test_single_tensors_are_read_with_what_they_need(tmp_path: Path) -> None:
    nncfx.storage.save(tmp_path / "a.nncfx", quantized(4))
    found = load_state(tmp_path / "a.nncfx", names=["2.weight"])
    assert found.keys() == {"2.weight"}
    assert torch.equal(found["2.weight"], load_state(tmp_path / "a.nncfx")["2.weight"])


@pytest.mark.parametrize(
    ("value", "kind"), [(float("nan"), torch.Tensor), (float("inf"), IntegerTensor)]
)
def test_weights_that_no_integer_stands_for_stay_floats(
    value: float, kind: type, tmp_path: Path
) -> None:
    model = quantized(8)
    with torch.no_grad():
        model.get_submodule("0").get_parameter("weight")[0, 0] = value
    nncfx.storage.save(tmp_path / "a.nncfx", model)
    found = load_state(tmp_path / "a.nncfx", integers=True)
    # infinity is clipped to the end of the grid
    assert isinstance(found["0.weight"], kind)


def test_integers_take_less_than_a_byte_or_half_a_one(tmp_path: Path) -> None:
    # 4 bits, a scale of 4 bytes and a zero point of one for 32; biases of 4 bytes for 64
    for bits, most in ((4, 0.5 + 5 / 32 + 4 / 64), (8, 1 + 8 / 64)):
        model = quantized(bits)
        weights = sum(one.numel() for name, one in model.named_parameters() if "weight" in name)
        nncfx.save(tmp_path / "a", model)
        size = nncfx.storage.save(tmp_path / "b", model).size_bytes
        stored = sum(one.nbytes for one in raw(tmp_path / "a"))
        assert stored <= most * weights
        assert size < (tmp_path / "a").stat().st_size


def raw(path: Path) -> list[torch.Tensor]:
    from safetensors.torch import load_file  # noqa: PLC0415 (the file as anybody reads it)

    return list(load_file(path).values())
