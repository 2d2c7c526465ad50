"""What a worker does, in this process."""

import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from nncfx.errors import MachineError
from nncfx.search.workers.worker import begin, evaluated, place


def draws(_: object) -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: S311, NPY002


def fails(_: object) -> None:
    raise ValueError("the loss is NaN")


def starves(_: object) -> None:
    raise MemoryError


def test_random_numbers_depend_on_the_task_alone() -> None:
    begin(pickle.dumps(draws), None)
    first, other, again = (evaluated(0, what).value for what in ("a", "b", "a"))
    assert first == again
    assert not set(first) & set(other)


def test_the_evaluation_is_read_from_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "evaluation"
    path.write_bytes(pickle.dumps(abs))
    assert begin(path, None) == place()
    assert place().process == os.getpid()
    assert evaluated(-2, "a").value == 2


def test_an_evaluation_that_fails_is_told_and_a_machine_that_does_is_raised() -> None:
    begin(pickle.dumps(fails), None)
    assert evaluated(0, "a").error == "ValueError: the loss is NaN"
    begin(pickle.dumps(starves), None)
    with pytest.raises(MachineError, match="ended the trial at 1"):
        evaluated(0, "the trial at 1")
