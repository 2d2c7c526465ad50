"""Without numba, long work is told before it is done."""

import logging

import pytest

from nncfx.storage import compiled


@pytest.mark.parametrize(
    ("is_compiled", "count", "told"),
    [
        (False, 1_000_000, ["1,000,000 numbers"]),
        (False, 1_000, []),
        (True, 1_000_000, []),
    ],
)
def test_slow_decoding_is_told_with_its_mend(
    count: int,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_compiled: bool,
) -> None:
    monkeypatch.setattr(compiled, "IS_COMPILED", is_compiled)
    with caplog.at_level(logging.WARNING):
        compiled.warn_slow(count)
    assert [one[:17] for one in caplog.messages] == told
    assert all("some 100 s" in one and "nncfx[codec]" in one for one in caplog.messages)
