"""A run without a common level has a page of its rows, which loads itself anew."""

from nncfx.report.progress import Progress, render_progress


def test_rows_are_shown_and_the_best_is_marked() -> None:
    rows = [{"trial": 0, "level": 0.25}, {"trial": 1, "level": None}]
    page = render_progress(
        Progress(title="<run>", state="running, 2 of 4", facts={"dense": "0.9"}, rows=rows, best=0)
    )
    assert "&lt;run&gt;" in page
    assert "Not ended: running, 2 of 4" in page
    assert '<tr class="chosen"><td class="number">0</td><td class="number">0.25</td></tr>' in page
    assert '<td class="number">1</td><td class="number"></td>' in page
    assert 'http-equiv="refresh"' in page
    assert "<script" not in page
