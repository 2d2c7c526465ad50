"""Read untrusted bytes with bounds checks on every read."""

from nncfx.errors import StorageError

_LARGEST_VARINT = 2**48


def varint(value: int) -> bytes:
    """Return `value`, in [0, 2**48], as LEB128: 7 bits a byte, lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 0x7F:  # noqa: PLR2004 (LEB128's seven bits)
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class ByteReader:
    """A cursor over bytes; reading past their end raises StorageError, never a short read."""

    def __init__(self, data: bytes | memoryview) -> None:
        """Start at the first byte of `data`."""
        self._data = memoryview(data)
        self._at = 0

    @property
    def left(self) -> int:
        """Return the number of bytes not yet read."""
        return len(self._data) - self._at

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes without copying them.

        Raises:
            StorageError: Fewer than `size` bytes are left.
        """
        if size > self.left:
            raise StorageError(
                f"The file is truncated or damaged: {size} bytes are announced where "
                f"{self.left} are left."
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        """Return the next LEB128 number, in [0, 2**48].

        Raises:
            StorageError: The number is truncated, too large, or not in its shortest form.
        """
        value, shift = 0, 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:  # noqa: PLR2004 (LEB128's last byte)
                break
            if shift > 48:  # noqa: PLR2004 (the length of the largest number)
                break
        if value > _LARGEST_VARINT or (byte == 0 and shift > 7):  # noqa: PLR2004 (one byte)
            raise StorageError(
                f"The file is damaged: {value} is not a count that this format has."
            )
        return value

    def finish(self) -> None:
        """Check that nothing is left.

        Raises:
            StorageError: Bytes are left over.
        """
        if self.left:
            raise StorageError(f"The file is damaged: {self.left} bytes are left over.")


class BitReader:
    """A cursor over the bits of a ByteReader, highest bit of each byte first."""

    def __init__(self, source: ByteReader) -> None:
        """Start at the first unread bit of `source`."""
        self._source = source
        self._byte = 0
        self._left = 0

    def bit(self) -> int:
        """Return the next bit.

        Raises:
            StorageError: No bit is left.
        """
        if not self._left:
            self._byte, self._left = self._source.take(1)[0], 8
        self._left -= 1
        return self._byte >> self._left & 1

    def bits(self, count: int) -> int:
        """Return the next `count` bits as a number.

        Raises:
            StorageError: Fewer bits are left.
        """
        value = 0
        for _ in range(count):
            value = value << 1 | self.bit()
        return value

    def gamma(self) -> int:
        """Return the next Elias gamma number, in [1, 2**17).

        Raises:
            StorageError: The number is truncated or too large.
        """
        zeros = 0
        while not self.bit():
            zeros += 1
            if zeros > 16:  # noqa: PLR2004 (an alphabet has at most 2**16 symbols)
                raise StorageError("The file is damaged: a code table has an impossible run.")
        return 1 << zeros | self.bits(zeros)

    def align(self) -> None:
        """Drop the rest of the current byte.

        Raises:
            StorageError: A dropped bit is not 0.
        """
        if self._byte & ((1 << self._left) - 1):
            raise StorageError("The file is damaged: padding bits are not zero.")
        self._left = 0
