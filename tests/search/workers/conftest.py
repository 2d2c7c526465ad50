"""Workers without processes: trials end in an order that a test chooses."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nncfx.search import Done
from nncfx.search.attempt import attempt


class HeldExecutor:
    """Evaluates when asked for a result: the task submitted last first; loses some.

    Attributes:
        most: how many were under way at the same time.
        lose: how many tasks are still to be lost.
    """

    def __init__(self, workers: int, lose: int = 0) -> None:
        self.workers, self.lose, self.most = workers, lose, 0
        self._busy: list[tuple[int, object, str]] = []
        self.is_open = False

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        self._evaluate, self.is_open = evaluate, True

    def submit(self, key: int, argument: object, what: str) -> None:
        self._busy.append((key, argument, what))
        self.most = max(self.most, len(self._busy))
        assert len(self._busy) <= self.workers

    def wait(self, grace: float = 0.0) -> list[Done]:
        assert grace >= 0
        key, argument, what = self._busy.pop()
        if self.lose:
            self.lose -= 1
            return [Done(key=key, attempt=None)]
        return [Done(key=key, attempt=attempt(lambda: self._evaluate(argument), what))]

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        self.is_open, self._busy = False, []


@pytest.fixture
def held() -> type[HeldExecutor]:
    return HeldExecutor
