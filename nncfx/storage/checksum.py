"""The checksum of files: CRC-32, from ISA-L if its Python package is installed."""

try:
    from isal.isal_zlib import crc32
except ImportError:  # the extra `codec`; zlib's takes 3.5 times as long
    from zlib import crc32

__all__ = ["crc32"]
