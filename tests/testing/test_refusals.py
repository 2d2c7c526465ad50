"""A refusal is of one class and has certain words."""

import pytest

from nncfx.testing.refusals import check_refused


def refuse() -> None:
    raise ValueError("no such thing")


def test_the_class_and_the_words_count() -> None:
    check_refused(refuse, ValueError, "such")
    with pytest.raises(AssertionError, match="does not say 'other': no such thing"):
        check_refused(refuse, ValueError, "other")
    with pytest.raises(AssertionError, match="should have said 'such'"):
        check_refused(lambda: None, ValueError, "such")
    with pytest.raises(ValueError, match="no such thing"):
        check_refused(refuse, TypeError, "such")
