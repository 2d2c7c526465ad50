"""What the command prints of a run."""

from pathlib import Path

import pytest

from nncfx.cli.run_output import show_status
from nncfx.tasks import RunStatus


@pytest.mark.parametrize(("trials", "is_told"), [(8, True), (0, False)])
def test_a_failed_search_with_a_journal_says_what_a_change_of_code_asks_for(
    trials: int, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = RunStatus(
        folder=Path("my run"),
        state="failed",
        kind="search",
        done=0,
        at_most=trials,
        last_change="2026-11-29T08:00:00+00:00",
        error="the metric is NaN",
    )
    show_status(found)
    printed = capsys.readouterr().out
    assert "continue with: nncfx resume 'my run'\n" in printed
    assert ("first: rm 'my run/journal.jsonl'\n" in printed) == is_told
