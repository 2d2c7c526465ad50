"""Promises of nncfx.tracing.calls.call_numbers."""

import sys
from typing import Any

import pytest

from nncfx.tracing.calls import call_numbers
from nncfx.tracing.calls.call_numbers import CallNumbers, Site, call_site


def test_a_call_that_another_trace_made_keeps_its_number() -> None:
    first = CallNumbers()
    assert [first.number("Net", "relu", site) for site in ((1,), (2,), (2,))] == [0, 1, 2]
    second = CallNumbers(first)
    # one at a new place, and a third turn at a known one, come behind all
    made = [second.number("Net", "relu", site) for site in ((2,), (3,), (2,), (2,))]
    assert made == [1, 3, 2, 4]
    assert second.number("Net", "tanh", (2,)) == 0
    assert second.number("Net/Part[0]", "relu", (2,)) == 0
    # and the first trace knows nothing of that
    assert first.number("Net", "relu", (3,)) == 3


def test_a_site_is_the_lines_of_the_frames_below_the_outermost() -> None:
    def inner() -> tuple[Site, int]:
        return call_site(sys._getframe(), outer.__code__), sys._getframe().f_lineno

    def middle() -> tuple[tuple[Site, int], int]:
        return inner(), sys._getframe().f_lineno

    def outer() -> tuple[tuple[Site, int], int]:
        return middle()

    (site, line_of_inner), line_of_middle = outer()
    assert site == (line_of_inner, line_of_middle)


def test_code_that_is_gone_leaves_no_lines_to_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_numbers, "_CODE_LIMIT", 3)
    for line in range(1, 40):
        found: dict[str, Any] = {"site": lambda frame: call_site(frame, frame.f_back)}
        source = "\n" * (line - 1) + "import sys; its = site(sys._getframe())"
        exec(compile(source, "made here", "exec"), found)  # noqa: S102 (as torch.fx makes code)
        assert found["its"] == (line,)
