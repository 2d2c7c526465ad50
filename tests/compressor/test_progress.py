"""What a person at a terminal sees."""

import os
import pty
import subprocess
import sys
import textwrap

import pytest

from nncfx.compressor.progress import narrated

SCRIPT = textwrap.dedent(
    """
    import time
    from nncfx.compressor.progress import narrated

    with narrated("speed [a]") as narrator:
        narrator.found("trial 1, level 0.5: accuracy 0.91")
        narrator.now("L-C step 3 of 7: minibatch 2")
        time.sleep(0.3)
        narrator.found("trial 2, level 0.7: failed")
    """
)


def test_without_a_terminal_nothing_is_written(capfd: pytest.CaptureFixture[str]) -> None:
    with narrated("speed") as narrator:
        narrator.now("measuring")
        narrator.found("trial 1")
    assert capfd.readouterr() == ("", "")


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
    assert "speed [a]: trial 2, level 0.7: failed" in text
