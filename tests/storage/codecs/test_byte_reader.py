"""Bytes and bits that are not trusted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.storage.codecs.byte_reader import BitReader, ByteReader, varint


@given(st.integers(0, 2**48))
def test_a_varint_reads_back(value: int) -> None:
    source = ByteReader(varint(value))
    assert source.varint() == value
    source.finish()


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\x80\x00", b"\xff" * 9, b"\xff\xff\xff\xff\xff\xff\xff\x7f"]
)
def test_a_cut_padded_or_huge_varint_is_refused(data: bytes) -> None:
    with pytest.raises(StorageError):
        ByteReader(data).varint()


def test_taking_more_than_is_left_is_refused() -> None:
    with pytest.raises(StorageError, match="3 bytes are announced where 2 are left"):
        ByteReader(b"ab").take(3)


def test_left_over_bytes_are_refused() -> None:
    with pytest.raises(StorageError, match="1 bytes are left over"):
        ByteReader(b"a").finish()


def test_bits_come_highest_first() -> None:
    bits = BitReader(ByteReader(bytes([0b10110000])))
    assert [bits.bit(), bits.bits(3)] == [1, 0b011]
    bits.align()


@pytest.mark.parametrize(("byte", "value"), [(0b10000000, 1), (0b01100000, 3), (0b00100000, 4)])
def test_gamma_numbers_are_zeros_then_the_binary(byte: int, value: int) -> None:
    assert BitReader(ByteReader(bytes([byte]))).gamma() == value


def test_a_gamma_number_beyond_the_alphabet_is_refused() -> None:
    with pytest.raises(StorageError, match="impossible run"):
        BitReader(ByteReader(bytes(8))).gamma()


def test_padding_that_is_not_zero_is_refused() -> None:
    bits = BitReader(ByteReader(bytes([0b10000001])))
    bits.bit()
    with pytest.raises(StorageError, match="padding"):
        bits.align()
