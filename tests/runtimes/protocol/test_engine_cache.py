"""Engines are found again by all that they depend on, and only then."""

from pathlib import Path

import pytest

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.engine_cache import content_digest, kept_engine, processor_digest

FACTS = {"runtime": "r", "version": "1"}


def never() -> bytes:
    raise AssertionError


def test_an_engine_is_built_once_and_found_the_next_time(tmp_path: Path) -> None:
    assert kept_engine(tmp_path / "new", FACTS, lambda: b"engine") == (b"engine", False)
    assert kept_engine(tmp_path / "new", dict(reversed(FACTS.items())), never) == (b"engine", True)


@pytest.mark.parametrize("changed", [{"version": "2"}, {"model": "other"}, {"runtime": "s"}])
def test_another_fact_is_another_engine(tmp_path: Path, changed: dict[str, str]) -> None:
    kept_engine(tmp_path, FACTS, lambda: b"old")
    assert kept_engine(tmp_path, FACTS | changed, lambda: b"new") == (b"new", False)


def test_without_a_folder_nothing_is_kept() -> None:
    assert kept_engine(None, FACTS, lambda: b"1") == (b"1", False)
    assert kept_engine(None, FACTS, lambda: b"2") == (b"2", False)


@pytest.mark.parametrize("position", [-1, -20])
def test_a_damaged_engine_is_told(tmp_path: Path, position: int) -> None:
    kept_engine(tmp_path, FACTS, lambda: b"engine")
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)
    with pytest.raises(RuntimeFailure, match=r"is damaged. Delete it"):
        kept_engine(tmp_path, FACTS, never)


def test_an_engine_of_another_version_under_this_name_is_told(tmp_path: Path) -> None:
    kept_engine(tmp_path, FACTS, lambda: b"one")
    (mine,) = tmp_path.iterdir()
    kept_engine(tmp_path, FACTS | {"version": "2"}, lambda: b"two")
    (other,) = (file for file in tmp_path.iterdir() if file != mine)
    mine.write_bytes(other.read_bytes())
    with pytest.raises(RuntimeFailure, match=r"by another version. Delete it"):
        kept_engine(tmp_path, FACTS, never)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        kept_engine(tmp_path, FACTS, never)
    assert list(tmp_path.iterdir()) == []


def test_the_digest_sees_the_weights_beside_the_model(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    weights = tmp_path / "model.onnx.data"
    model.write_bytes(b"graph")
    digests = {content_digest(model)}
    weights.write_bytes(b"1")
    digests.add(content_digest(model))
    weights.write_bytes(b"2")
    digests.add(content_digest(model))
    assert len(digests) == 3


def test_the_digest_does_not_see_the_name(tmp_path: Path) -> None:
    one, other = tmp_path / "a.onnx", tmp_path / "b.onnx"
    one.write_bytes(b"same")
    other.write_bytes(b"same")
    assert content_digest(one) == content_digest(other)


def test_processors_with_other_instructions_differ(tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    digests = set()
    for flags in ("avx2", "avx512f"):
        file.write_text(f"model name\t: CPU\nflags\t\t: {flags}\n", encoding="utf-8")
        digests.add(processor_digest(file))
    assert len(digests) == 2
