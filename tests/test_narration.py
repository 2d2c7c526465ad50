"""What a person at a terminal sees."""

import logging
import os
import pty
import random
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from nncfx.narration import narrated, tracked

SCRIPT = textwrap.dedent(
    """
    import time
    from nncfx.narration import narrated

    with narrated("speed [a]") as narrator:
        narrator.found("trial 1, level 0.5: accuracy 0.91")
        narrator.now("L-C step 3 of 7: minibatch 2")
        time.sleep(0.3)
        with narrated("export") as inner:
            inner.now("translating")
            time.sleep(0.3)
        narrator.found("trial 2, level 0.7: failed")
    """
)


@pytest.mark.parametrize("use", [lambda: list(tracked([1], "")), lambda: _narrate("a")])
def test_the_first_use_of_rich_draws_no_number_of_the_user(
    use: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    before = random.getstate()
    use()
    assert random.getstate() == before


def _narrate(title: str) -> None:
    with narrated(title):
        pass


def test_without_a_terminal_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    with narrated("speed") as narrator:
        narrator.now("measuring")
        narrator.found("trial 1")
    assert capfd.readouterr() == ("", "")


def test_the_log_has_stages_but_not_every_step(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), narrated("speed") as narrator:
        narrator.now("judging the dense model")
        for batch in range(100):
            narrator.step(f"batch {batch}")
        narrator.found("dense: accuracy 0.9")
    assert [one.getMessage() for one in caplog.records] == [
        "speed: judging the dense model",
        "speed: dense: accuracy 0.9",
    ]


def test_steps_are_logged_every_ten_seconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("nncfx.narration.time.monotonic", lambda: now)
    with caplog.at_level(logging.INFO), narrated("speed") as narrator:
        for now in (4.0, 10.0, 14.0, 19.0, 20.0, 20.1):
            narrator.step(f"at {now}")
    assert [one.getMessage() for one in caplog.records] == ["speed: at 10.0", "speed: at 20.0"]


def test_at_a_terminal_findings_stay_and_the_present_step_is_shown() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    subprocess.run(
        [sys.executable, "-c", SCRIPT], stderr=theirs, check=True, env=environment, timeout=60
    )
    os.close(theirs)
    text = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "speed [a]: trial 1, level 0.5: accuracy 0.91" in text
    assert "speed [a]: L-C step 3 of 7: minibatch 2" in text
    assert "export: translating" in text
    assert "speed [a]: trial 2, level 0.7: failed" in text
