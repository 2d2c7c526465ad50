"""Codes of weights as bytes."""

import pytest
import torch

from nncfx.quantization.packing.codes import CodeFormat, as_rows
from nncfx.storage.models.integer_tensor import IntegerTensor


def nibbles(*, signed: bool) -> IntegerTensor:
    low = -8 if signed else 0
    dtype = torch.int8 if signed else torch.uint8
    values = torch.arange(low, low + 15, dtype=dtype).view(3, 5)
    return IntegerTensor(
        values=values, scale=torch.ones(3), zero_point=torch.zeros(3).int(), bits=4, axis=0
    )


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("split", [3, 2])
def test_two_codes_share_a_byte_and_come_back(*, signed: bool, split: int) -> None:
    stored = nibbles(signed=signed)
    code = CodeFormat.of(stored)
    rows = stored.values.T
    if split == 2:
        rows = rows[:4]
    packed = code.pack(rows, split)
    assert packed.shape == (split, 3)
    assert torch.equal(code.unpack(packed, len(rows)), rows)
    low = code.numbers(packed, torch.empty(packed.shape))
    assert torch.equal(low[:split] + code.lowest, rows[:split].float())


def test_all_bytes_of_float8_become_their_numbers() -> None:
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn)
    finite = values[values.float().isfinite()].view(1, -1)
    code = CodeFormat(dtype=values.dtype, bits=8, lowest=0, codebook=None)
    assert torch.equal(code.numbers(finite, torch.empty(finite.shape)), finite.float())


def test_columns_that_make_outputs_become_rows() -> None:
    columns = IntegerTensor(
        values=torch.tensor([[1, 2], [3, 4]], dtype=torch.int8),
        scale=torch.tensor([1.0, 10.0]),
        zero_point=torch.zeros(2).int(),
        bits=8,
        group=2,
        columns=True,
    )
    rows = as_rows(columns, turned=True)
    assert rows.dequantize().tolist() == [[1, 3], [20, 40]]
    assert torch.equal(rows.dequantize().T, columns.dequantize())
    assert as_rows(columns) is columns
