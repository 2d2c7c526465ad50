"""Compiled loops over codes."""

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from nncfx.quantization.packing import kernels
from nncfx.quantization.packing.codes import CodeFormat

RANDOM = np.random.default_rng(0)
UINT4 = CodeFormat(dtype=torch.uint8, bits=4, lowest=0, codebook=None)


def test_nibbles_are_decoded_from_any_input_and_output_on() -> None:
    """Three groups of five inputs, two of them in the low halves; rows lie apart."""
    codes, scale = RANDOM.integers(0, 16, (15, 9)), RANDOM.random((3, 9), dtype=np.float32)
    zeros = RANDOM.integers(0, 16, (3, 9))
    packed = [
        UINT4.pack(torch.from_numpy(one).to(torch.uint8), split).numpy()
        for one, split in ((codes, 10), (zeros, 2))
    ]
    into = np.full((6, 5), 7, dtype=np.float32)
    kernels.decode_nibbles(packed[0], scale, packed[1], 0, 5, 7, 3, 4, into)
    expected = (codes - zeros.repeat(5, 0)) * scale.repeat(5, 0)
    np.testing.assert_allclose(into[:, :4], expected[7:13, 3:7], rtol=1e-6)
    np.testing.assert_array_equal(into[:, 4], 7)


@pytest.mark.parametrize("group", [1, 4, 13])
def test_bytes_are_multiplied_for_some_outputs_and_added(group: int) -> None:
    """13 inputs are one block of eight and a part of one."""
    codes = RANDOM.integers(-128, 128, (13, 9)).astype(np.int8)
    scale = RANDOM.random((-(-13 // group), 9), dtype=np.float32)
    x, y = RANDOM.random((2, 13), dtype=np.float32), np.ones((2, 9), dtype=np.float32)
    kernels.multiply_bytes(codes, scale, codes[:0], 3, group, 2, 8, x, y)
    expected = 1 + x @ ((codes - 3.0) * scale.repeat(group, 0)[:13])
    np.testing.assert_allclose(y[:, 2:8], expected[:, 2:8], rtol=1e-4, atol=1e-4)
    assert (y[:, :2] == 1).all()
    assert (y[:, 8:] == 1).all()
