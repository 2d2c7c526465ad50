"""Files have one checksum, whoever computes it."""

import importlib
import sys
import zlib

import pytest

from nncfx.storage import checksum


@pytest.mark.parametrize("is_installed", [True, False])
def test_it_is_the_crc_32_of_zip_files(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_installed:
        monkeypatch.setitem(sys.modules, "isal.isal_zlib", None)
    found = importlib.reload(checksum).crc32
    assert (found is zlib.crc32) is not is_installed
    assert found(b"123456789") == 0xCBF43926  # the check value of CRC-32/ISO-HDLC
    assert found(memoryview(b"")) == 0
    monkeypatch.undo()
    importlib.reload(checksum)
