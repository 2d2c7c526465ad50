"""Lines are on disk whole or not at all, and what is read of them is bounded."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.storage.formats import line_file
from nncfx.storage.formats.line_file import (
    append_line,
    could_begin,
    json_line,
    read_lines,
    whole_and_torn,
)


@given(
    lines=st.lists(st.binary(max_size=9).filter(lambda one: b"\n" not in one), max_size=5),
    room=st.lists(st.integers(0, 12), max_size=12),
)
def test_a_disk_that_fills_at_any_byte_leaves_whole_lines_and_loses_none(
    lines: list[bytes], room: list[int]
) -> None:
    real, left = os.write, list(room)

    def write(handle: int, data: bytes) -> int:
        taken = left.pop(0) if left else len(data)
        if not taken:
            raise OSError(28, "No space left on device")
        return real(handle, bytes(data)[:taken])

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "log"
        handle, size = os.open(path, os.O_RDWR | os.O_CREAT), 0
        patch.setattr(line_file.os, "write", write)
        written = b""
        for line in lines:
            try:
                size = append_line(handle, size, line + b"\n")
                written += line + b"\n"
            except OSError:
                pass
            assert path.read_bytes() == written
            assert size == len(written)
        os.close(handle)


def test_a_line_takes_the_place_of_what_is_torn(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log"
    assert read_lines(path).lines == ()
    read_lines(path).append(b"one\n")
    path.write_bytes(path.read_bytes() + b"tor")
    found = read_lines(path)
    assert (found.lines, found.torn) == ((b"one",), b"tor")
    found.append(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


@given(st.binary(max_size=40))
def test_lines_and_what_is_torn_make_the_file(content: bytes) -> None:
    lines, torn = whole_and_torn(content)
    assert b"".join(line + b"\n" for line in lines) + torn == content
    assert b"\n" not in torn


@given(st.binary(max_size=6), st.binary(max_size=6))
def test_a_line_could_begin_so_if_one_is_the_beginning_of_the_other(
    line: bytes, beginning: bytes
) -> None:
    shorter = min(len(line), len(beginning))
    assert could_begin(line, beginning) == (line[:shorter] == beginning[:shorter])


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"[1]", "is not an object"),
        (b'{"a": NaN}', "NaN is not finite"),
        (b'{"a": -Infinity}', "-Infinity is not finite"),
        (b"[" * 10**6, "nested too deeply"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, "more than 100 deep"),
        (b'{"a"', "delimiter"),
        (b"\xff", "decode"),
    ],
)
def test_what_is_no_plain_object_is_refused_with_the_reason(line: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        json_line(line)


def test_an_object_of_ninety_levels_is_read() -> None:
    line = b'{"a":' * 90 + b"1" + b"}" * 90
    found: object = json_line(line)
    for _ in range(90):
        assert isinstance(found, dict)
        found = found["a"]
    assert found == 1
