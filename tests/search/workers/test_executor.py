"""What a search needs of an executor, and how an evaluation is divided."""

import pickle
import threading

import pytest

from nncfx.errors import ArgumentError
from nncfx.search import Executor, LocalExecutor, SplitEvaluation
from nncfx.search.workers.executor import check_workers, pickled, split


def test_a_local_executor_is_an_executor() -> None:
    assert isinstance(LocalExecutor(1), Executor)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, "2"])
def test_a_number_of_workers_that_is_none_is_refused(workers: object) -> None:
    with pytest.raises(ArgumentError, match="workers is"):
        check_workers(workers)


def test_called_here_a_split_evaluation_does_all_of_its_parts() -> None:
    parts = SplitEvaluation[int, str](
        prepare=lambda point, after: (point, after),
        work=lambda sent: sent[0] * 10,
        finish=lambda point, found: f"{point}: {found}",
    )
    assert parts(3) == "3: 30"
    assert split(parts) is parts


def test_a_plain_function_is_worked_on_whole() -> None:
    whole = split(lambda level: level * 2)
    assert whole.finish(0.3, whole.work(whole.prepare(0.3, 4))) == 0.6


def test_what_cannot_be_passed_on_is_refused_with_the_reason() -> None:
    lock = threading.Lock()
    with pytest.raises(ArgumentError, match=r"cannot be passed to another process.*lock"):
        pickled(lambda _: lock)


def test_what_can_is_the_same_behind() -> None:
    assert pickle.loads(pickled(abs))(-3) == 3  # noqa: S301 (our own)
