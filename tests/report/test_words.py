"""Every word of the table is on the page it explains."""

import pytest

import report_evidence as given
from nncfx.report import render_report
from nncfx.report.words import WORDS, explained


def test_a_word_that_is_not_there_has_no_meaning() -> None:
    assert explained("flux") == ""
    assert explained("S_ACC") == WORDS["s_acc"]


@pytest.mark.parametrize("word", ["MACs", "level", "s_acc", "threshold", "bracket", "codebook"])
def test_the_page_explains(word: str) -> None:
    page = render_report(given.EVIDENCE)
    assert f'data-means="{explained(word)}">{word}</abbr>' in page
