"""Actors of Ray evaluate and die."""

import os
import signal
from pathlib import Path

import pytest

from nncfx.errors import MissingExtraError
from nncfx.search import Executor, RayExecutor
from nncfx.search.workers import ray_executor


def task(path: Path) -> int:
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"nncfx\[ray\]"):
        RayExecutor(2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_actors_die_and_are_replaced(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with RayExecutor(2, cpus=1) as executor:
            assert isinstance(executor, Executor)
            executor.open(task)
            executor.submit(0, tmp_path / "died", "nought")
            (lost,) = executor.wait()
            assert lost.attempt is None
            executor.submit(0, tmp_path / "died", "nought")
            (done,) = executor.wait()
            assert done.attempt.value != os.getpid()
    finally:
        ray.shutdown()
    assert ray_executor.__name__ == "nncfx.search.workers.ray_executor"
