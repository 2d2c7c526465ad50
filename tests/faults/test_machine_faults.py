"""A fault of the machine says nothing of a candidate: it stops the run, and is never stored."""

import errno
import multiprocessing
import os
import re
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx import hago
from nncfx.errors import machine_fault
from nncfx.hago.search.evaluation import LabelledBatches
from nncfx.lc import DC
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import Prune
from nncfx.search import (
    CandidateStudy,
    Measurement,
    Problem,
    Range,
    SearchSettings,
    Space,
    SpaceSettings,
    Study,
    find_level,
    search_space,
)

Fault = Callable[[], None]


def full_disk() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def broken_disk() -> None:
    raise OSError(errno.EIO, "Input/output error")


def no_memory() -> None:
    raise MemoryError


def no_device_memory() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


def a_tensor_beyond_memory() -> None:
    torch.empty(1 << 60)


def behind_an_error_of_another() -> None:
    try:
        full_disk()
    except OSError as error:
        raise ValueError("the metric could not log its predictions") from error


def before_another_error() -> None:
    try:
        no_device_memory()
    except RuntimeError:
        raise ValueError("no batch")  # noqa: B904 (as users write it)


def in_the_words_of_a_runtime() -> None:
    raise RuntimeError("[ONNXRuntimeError] : Failed to allocate memory for requested buffer")


def a_killed_worker() -> None:
    raise RuntimeError("DataLoader worker (pid 123) is killed by signal: Killed.")


def a_runtime_that_tells_no_error() -> None:
    raise nncfx.errors.RuntimeFailure("TensorRT: Error Code 1: Cuda Runtime (out of memory)")


FAULTS = [
    a_runtime_that_tells_no_error,
    full_disk,
    broken_disk,
    no_memory,
    no_device_memory,
    a_tensor_beyond_memory,
    behind_an_error_of_another,
    before_another_error,
    in_the_words_of_a_runtime,
    a_killed_worker,
]


class Once:
    """Runs a fault at the n-th call, and never again."""

    def __init__(self, fault: Fault, at: int) -> None:
        self.fault, self.left = fault, at

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.fault()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_search_stops_and_goes_on_to_the_answer_of_an_undisturbed_one(
    tmp_path: Path, fault: Fault
) -> None:
    once = Once(fault, 3)

    def accuracy(level: float) -> float:
        once()
        return 0.93 - 0.5 * level**8

    def found() -> float:
        with Study(tmp_path / "journal.jsonl", {}) as study:
            return find_level(accuracy, 0.91, at_zero=0.93, max_evaluations=5, study=study).level

    with pytest.raises(Exception):  # noqa: B017, PT011 (which is told below)
        found()
    level = found()
    once.left = 0
    assert level == find_level(accuracy, 0.91, at_zero=0.93, max_evaluations=5).level


@pytest.mark.parametrize("fault", FAULTS)
def test_the_stop_says_what_happened_and_how_to_go_on(fault: Fault) -> None:
    def accuracy(_: float) -> Measurement:
        fault()
        raise AssertionError

    with pytest.raises(
        nncfx.errors.MachineError,
        match=r"trial 0, level 0\.5.*nothing is recorded.*run the search again",
    ):
        Study().run("accuracy", 0.5, accuracy)


class Images(torch.utils.data.Dataset[torch.Tensor]):
    """One image, whose file is gone."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.frombuffer(bytearray(Path("/no/image.png").read_bytes()), dtype=torch.uint8)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_missing_file_of_users_data_is_no_fault_of_the_machine(workers: int) -> None:
    loader = torch.utils.data.DataLoader(Images(), num_workers=workers)

    def accuracy(_: float) -> Measurement:
        return Measurement(metric=sum(len(one) for one in loader), objective=0)

    with pytest.raises(
        nncfx.errors.MachineError,
        match=rf"^FileNotFoundError at {re.escape(__file__)}, line \d+ ended trial 0, level 0\.5: "
        r"\[Errno 2\] No such file or directory: '/no/image.png'\. This.*nothing is recorded.*"
        "its path.*run the search again",
    ):
        Study().run("accuracy", 0.5, accuracy)


@pytest.mark.parametrize(
    "fault",
    [
        ValueError("the loss is NaN"),
        RuntimeError("Expected more than 1 value per channel when training"),
        nncfx.errors.CompressionError("nothing is left"),
        ZeroDivisionError("division by zero"),
    ],
)
def test_what_is_wrong_with_a_candidate_is_recorded(fault: Exception) -> None:
    def accuracy(_: float) -> Measurement:
        raise fault

    assert Study().run("accuracy", 0.5, accuracy).error == f"{type(fault).__name__}: {fault}"


def test_a_file_that_was_only_looked_for_is_not_why_a_candidate_failed() -> None:
    def accuracy(_: float) -> Measurement:
        try:
            Path("/no/cache").read_bytes()
        except FileNotFoundError:
            return Measurement(metric=1 / int("0"), objective=0)
        raise AssertionError

    assert Study().run("accuracy", 0.5, accuracy).state == "failed"


def test_a_search_of_a_space_stops_too(tmp_path: Path) -> None:
    once = Once(no_memory, 3)
    problem = Problem(space=Space([Range("x", 0.0, 1.0)]), objectives={"y": "minimize"})

    def search() -> list[str]:
        def outcomes(candidate: dict[str, float]) -> dict[str, float]:
            once()
            return {"y": (candidate["x"] - 0.3) ** 2}

        settings = SpaceSettings(max_evaluations=5, initial=4)
        with CandidateStudy(tmp_path / "journal.jsonl", {}) as study:
            result = search_space(outcomes, problem, settings=settings, study=study)
        return [trial.state for trial in result.trials]

    with pytest.raises(nncfx.errors.MachineError, match="trial 2 at"):
        search()
    assert search() == ["done"] * 5


def test_a_search_of_bits_stops_and_its_log_goes_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 3), nn.Flatten()).eval()
    images = torch.randn(8, 3, 6, 6)
    graph = hago.prepare_graph(model, images[:1])
    data = [(images, model(images).argmax(1))]

    def search(flag: Path | None, log: str) -> hago.Strategy:
        settings = hago.QuantizeSettings(
            evaluate=Faulty(flag), most_trials=4, thresholds="max_range"
        )
        hardware = hago.create_sample_hardware()
        return hago.search_quantize_strategy(
            graph, hardware, data, tuner="random", log=tmp_path / log, settings=settings
        )[0]

    with pytest.raises(nncfx.errors.MachineError, match="it continues after its last trial"):
        search(tmp_path / "flag", "disturbed")
    assert search(tmp_path / "flag", "disturbed") == search(None, "undisturbed")
    logs = [(tmp_path / name).read_text() for name in ("disturbed", "undisturbed")]
    assert logs[0] == logs[1]


class Faulty:
    """Judges by accuracy; fails for want of memory once, which a file remembers."""

    def __init__(self, flag: Path | None) -> None:
        self.flag = flag

    def __call__(self, model: nn.Module, batches: LabelledBatches) -> float:
        if self.flag is not None and not self.flag.exists():
            self.flag.write_bytes(b"")
            raise torch.OutOfMemoryError("CUDA out of memory")
        return hago.top1_accuracy(model, batches)


class Task:
    """A linear model and its data; the metric has a fault at one of its calls."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        x = torch.randn(64, 16)
        self.model = nn.Linear(16, 2)
        self.batches = [(x, self.model(x).argmax(1).detach())]
        self.once: Callable[[], None] = lambda: None

    def metric(self, model: nn.Module, loader: list[tuple[torch.Tensor, torch.Tensor]]) -> float:
        self.once()
        [(x, y)] = loader
        return float((model(x).argmax(1) == y).float().mean())

    def run(self, folder: Path | None) -> nncfx.compressor.CompressionResult:
        return nncfx.Compressor(
            model=self.model,
            objective=Minimize(footprint),
            eps=0.05,
            scheme=Prune(),
            optimizer=DC(),
            trainloader=self.batches,
            valloader=self.batches,
            criterion=F.cross_entropy,
            metric=self.metric,
            folder=folder,
            runtime="torch",
            settings=SearchSettings(max_evaluations=4),
        ).run()


@pytest.mark.slow
def test_a_compressor_stops_and_goes_on_to_the_level_of_an_undisturbed_one(tmp_path: Path) -> None:
    task = Task()
    whole = task.run(None)
    for fault in (full_disk, no_device_memory):
        folder = tmp_path / fault.__name__
        task.once = Once(fault, 3)
        with pytest.raises(nncfx.errors.MachineError):
            task.run(folder)
        again = task.run(folder)
        assert again.search.level == whole.search.level
        assert [t.state for t in again.search.trials] == [t.state for t in whole.search.trials]


@pytest.mark.slow
def test_failures_of_candidates_are_in_the_evidence(tmp_path: Path) -> None:
    task = Task()

    def broken() -> None:
        raise ValueError("the loss is NaN")

    task.once = Once(broken, 2)
    result = task.run(tmp_path)
    [note] = [one for one in result.evidence.notes if "failed" in one]
    assert "the loss is NaN" in note
    assert f"level {result.search.trials[1].level:.4g}" in note
    assert "the loss is NaN" in (tmp_path / "evidence.json").read_text()


def die(_: int) -> float:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_killed_worker_of_a_pool_is_a_fault_of_the_machine() -> None:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(1, context) as pool, pytest.raises(Exception) as caught:  # noqa: PT011 (which is told below)
        list(pool.map(die, [1]))
    assert machine_fault(caught.value) is caught.value


@pytest.mark.parametrize(
    "text",
    [
        (
            "[enforce fail at alloc_cpu.cpp:117] . DefaultCPUAllocator: can't allocate memory: "
            "you tried to allocate 4 bytes. Error code 12 (Cannot allocate memory)"
        ),
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "CUBLAS_STATUS_NOT_INITIALIZED",
        "HIP out of memory. Tried to allocate 20.00 MiB",
        "MPS backend out of memory (MPS allocated: 17.00 GB)",
        "std::bad_alloc",
        "[ONNXRuntimeError] : 1 : FAIL : bad allocation",
        "BFCArena: Available memory of 0 is smaller than requested bytes of 256",
        "[ GPU ] clEnqueueMapBuffer, error code: CL_OUT_OF_RESOURCES",
        "unable to mmap 1024 bytes from file </f>: Cannot allocate memory (12)",
        "unable to write to file </torch_1_2>: No space left on device (28)",
        "[enforce fail at inline_container.cc:603] . unexpected pos 64 vs 0",
        (
            "DataLoader worker (pid 7) exited unexpectedly with exit code 1. insufficient shared "
            "memory (shm)"
        ),
        "Too many open files. Communication with the workers is no longer possible.",
        'Error while serializing: I/O error: Os { code: 28, message: "No space left on device" }',
        "database or disk is full",
        "CUDA driver error: device-side assert triggered",
    ],
)
def test_what_libraries_say_of_the_machine_is_known(text: str) -> None:
    assert machine_fault(RuntimeError(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "The training loss became nan",
        "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)",
        "Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) differ",
        "index 3 is out of range",
        "The memory format option is only supported for tensors of rank 4",
        "Expected all tensors to be on the same device, cuda:0 and cpu",
        "cannot reshape tensor of 0 elements",
    ],
)
def test_what_libraries_say_of_a_candidate_is_no_fault_of_the_machine(text: str) -> None:
    assert machine_fault(RuntimeError(text)) is None


class Starved(nn.Module):
    """Two convolutions; there is no memory for one of its calls."""

    def __init__(self, at: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 2, 3)
        self.first.weight.data[:4] = 0
        self.first.bias.data[:4] = 0
        self.second.weight.data[:, :4] = 0
        self.calls = [0, at]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls[0] += 1
        if self.calls[0] == self.calls[1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.second(self.first(x).relu())


def test_thinning_never_makes_another_model_for_want_of_memory() -> None:
    image = torch.randn(1, 1, 8, 8)
    whole = Starved(0)
    expected = nncfx.thin(whole, image).removed
    assert expected
    for at in range(1, 40):
        model, caught, found = Starved(at), None, expected
        try:
            found = nncfx.thin(model, image).removed
        except Exception as error:  # noqa: BLE001 (which is told below)
            caught = machine_fault(error)
            assert caught is not None, error  # noqa: PT017 (either may be)
        assert caught is not None or found == expected
