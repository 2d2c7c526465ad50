"""Kill and starve nncfx at every file operation: what is on disk must come out as if undisturbed.

Each case runs a small task of an area in a forked process that is disturbed up to four times:
killed (SIGKILL) at a drawn file operation, step of computation or moment, or given ENOSPC, EIO or
no memory there. Then the task runs again, undisturbed, in the same folder; journals, files and
choices must equal those of a run that nothing ever disturbed. After each disturbance no file may
be there in part under its own name.

    OMP_NUM_THREADS=1 nice -n 10 python benchmarks/kills.py --kills 200 --errors 60
"""
# ruff: noqa: ANN401 (what stands before any function takes and returns anything)

import argparse
import errno
import functools
import hashlib
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
import safetensors
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx import hago
from nncfx.compressor import build_evidence
from nncfx.compressor.trials import candidate_timer
from nncfx.errors import NNCFXError
from nncfx.lc import DC, LC, RecoveryData
from nncfx.objectives import Minimize, footprint
from nncfx.runtimes import TimingPlan
from nncfx.runtimes.protocol.engine_cache import kept_engine
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
    search_level,
    search_space,
)
from nncfx.storage.formats.whole_file import write_text

FAULTS: Mapping[str, Callable[[], BaseException]] = {
    "ENOSPC": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "EIO": lambda: OSError(errno.EIO, os.strerror(errno.EIO)),
    "memory": MemoryError,
    "device memory": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
}
_DIED, _RAISED, _FOREIGN = -signal.SIGKILL, 3, 4
_DRAWN_TIMES = 0.3


class Operations:
    """Counts file operations and steps of computation, and disturbs one of them.

    Attributes:
        count: How many there were.
        at: The one to disturb, from 1; 0 for none.
        fault: "kill", or a name of `FAULTS`.
    """

    def __init__(self) -> None:
        self.count, self.at, self.fault = 0, 0, "kill"

    def step(self, partly: Callable[[], object] = lambda: None) -> None:
        """Count one; if it is the one, do `partly` what it does and disturb it."""
        self.count += 1
        if self.count == self.at:
            partly()
            if self.fault == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            fault = FAULTS[self.fault]()
            raise fault

    def install(self) -> None:
        """Stand before the functions through which nncfx changes files."""
        for name in ("fsync", "replace", "ftruncate"):
            setattr(os, name, self._before(getattr(os, name)))
        write = os.write

        def writing(handle: int, content: bytes) -> int:
            self.step(lambda: write(handle, content[: len(content) // 2]))
            return write(handle, content)

        os.write = writing  # type: ignore[assignment]

    def _before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def disturbed(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return function(*args, **kwargs)

        return disturbed


OPERATIONS = Operations()


def data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return two minibatches of 16 numbers in two classes."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(32, 16, generator=generator)
    return list(zip(x.split(16), (x[:, 0] < 0).long().split(16), strict=True))


def network() -> nn.Module:
    """Return a network for `data`, the same always."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 2))
    return model.eval()


@torch.no_grad()
def accuracy(model: nn.Module, batches: Any) -> float:
    """Return the share of samples that are right; a step that may be disturbed."""
    OPERATIONS.step()
    found = [(model(x).argmax(1) == y).float().mean() for x, y in batches]
    return float(torch.stack(found).mean())


def search(folder: Path) -> None:
    """Search a level and a space over made-up curves."""

    def evaluate(level: float) -> Measurement:
        OPERATIONS.step()
        return Measurement(metric=0.93 - 0.16 * level**3, objective=1 / (1.01 - level))

    with Study(folder / "level.jsonl", {"model": "abc"}) as study:
        result = search_level(
            evaluate,
            threshold=0.91,
            maximize=True,
            at_zero=Measurement(metric=0.93, objective=1.0),
            study=study,
            settings=SearchSettings(max_evaluations=5),
        )
    problem = Problem(space=Space([Range("x", 0.0, 1.0)]), objectives={"y": "minimize"})

    def outcomes(candidate: Mapping[str, Any]) -> dict[str, float]:
        OPERATIONS.step()
        return {"y": (candidate["x"] - 0.3) ** 2}

    with CandidateStudy(folder / "space.jsonl", {"model": "abc"}) as candidates:
        settings = SpaceSettings(max_evaluations=5, initial=4)
        best = search_space(outcomes, problem, settings=settings, study=candidates).best
    write_text(folder / "choice.json", json.dumps([result.level, dict(best.candidate)]))


def compressor(folder: Path) -> None:
    """Run the compressor in a folder."""
    nncfx.Compressor(
        model=network(),
        objective=Minimize(footprint),
        eps=0.2,
        scheme=Prune(),
        optimizer=DC(),
        trainloader=data(),
        valloader=data(),
        criterion=F.cross_entropy,
        metric=accuracy,
        folder=folder,
        runtime="torch",
        settings=SearchSettings(max_evaluations=4),
    ).run().save(folder / "result.nncfx")


def training(folder: Path) -> None:
    """Train with a checkpoint after each epoch, go on from the last one; then a recovery."""
    path = folder / "checkpoint.safetensors"
    config = {
        "compression": {
            "algorithm": "magnitude_sparsity",
            "sparsity_init": 0.1,
            "params": {"sparsity_target": 0.5, "sparsity_target_epoch": 4},
        }
    }
    if path.exists():
        controller, model = nncfx.load(path, network())
    else:
        example = data()[0][0]
        controller, model = nncfx.create_compressed_model(network(), config, example)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    while controller.scheduler.current_epoch < 5:  # noqa: PLR2004 (epochs)
        controller.scheduler.epoch_step()
        for x, y in data():
            OPERATIONS.step()
            controller.scheduler.step()
            optimizer.zero_grad()
            (F.cross_entropy(model(x), y) + controller.loss()).backward()
            optimizer.step()
        nncfx.save(path, model, controller)
    lc = LC(steps=4, lr=0.05, mb_iterations_per_l=3, resume_folder=folder / "unfinished")
    recovery = RecoveryData(
        train=data(),
        validate=lambda candidate: accuracy(candidate, data()),
        criterion=F.cross_entropy,
    )
    found = lc.recover(network(), Prune(), 0.5, recovery)
    nncfx.storage.save(folder / "recovered.nncfx", found.model)


def bits(folder: Path) -> None:
    """Search bits with a log."""
    model, batches = network(), data()

    def evaluate(candidate: nn.Module, judged: Any) -> float:
        OPERATIONS.step()
        return hago.top1_accuracy(candidate, judged)

    graph = hago.prepare_graph(model, batches[0][0])
    settings = hago.QuantizeSettings(most_trials=8, thresholds="max_range", evaluate=evaluate)
    log = folder / "log.jsonl"
    hardware = hago.create_sample_hardware()
    strategy, _ = hago.search_quantize_strategy(
        graph, hardware, batches, tuner="greedy", log=log, settings=settings
    )
    write_text(folder / "strategy.json", json.dumps(strategy.to_json(), sort_keys=True))


def export(folder: Path) -> None:
    """Write an ONNX file, quantized."""
    model = nncfx.quantize(network(), [x for x, _ in data()])
    OPERATIONS.step()
    nncfx.export_onnx(model, folder / "model.onnx", data()[0][0], dynamic_batch=False)


def storage(folder: Path) -> None:
    """Write a model in every format of ours, an engine and a text, over older ones."""
    for version in range(2):
        model = network()
        model[2].bias.data += version
        for number in range(2):
            nncfx.storage.save(folder / f"{number}.nncfx", model)
        nncfx.storage.unpack_safetensors(folder / "0.nncfx", folder / "0.safetensors")
        nncfx.storage.pack_safetensors(folder / "0.safetensors", folder / "packed.nncfx")
        kept_engine(folder / "engines", {"runtime": "r", "v": str(version)}, lambda: b"engine")
        write_text(folder / "text", f"version {version}\n")
        OPERATIONS.step()


AREAS: Mapping[str, Callable[[Path], None]] = {
    "search": search,
    "compressor": compressor,
    "training": training,
    "hago": bits,
    "export": export,
    "storage": storage,
}


def snapshot(folder: Path) -> dict[str, Any]:
    """Return what is in `folder`, by path: hidden files too, times of the clock not.

    safetensors writes to a file `.tmp...` of its own first, which a kill leaves; nothing reads it.
    """
    files = sorted(
        file for file in folder.rglob("*") if not (file.is_dir() or file.name.startswith(".tmp"))
    )
    return {str(file.relative_to(folder)): _content(file) for file in files}


_CLOCK = ("seconds", "started", "created", "command", "machine")


def _content(file: Path) -> Any:
    if file.suffix == ".jsonl":
        return [_timeless(json.loads(line)) for line in file.read_bytes().splitlines()]
    if file.name == "evidence.json":
        return _timeless(json.loads(file.read_bytes()))
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        told = {k: v for k, v in value.items() if k not in _CLOCK}
        return {
            k: _timeless(v)
            for k, v in told.items()
            if not any(word in k for word in ("latency", "throughput", "time_"))
        }
    if isinstance(value, list):
        return [_timeless(one) for one in value if "CPU time" not in str(one)]
    return value


@dataclass
class Tally:
    """What came of an area.

    Attributes:
        counts: Kills, errors by name, cases and faults.
        faults: What was wrong, in words.
    """

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def _read_safetensors(file: Path) -> None:
    with safetensors.safe_open(file, framework="pt") as content:
        for name in content.keys():  # noqa: SIM118 (no mapping)
            content.get_tensor(name)


READERS: Mapping[str, Callable[[Path], object]] = {
    ".nncfx": nncfx.storage.load_state,
    ".safetensors": _read_safetensors,
    ".onnx": onnx.checker.check_model,
    ".json": lambda file: json.loads(file.read_bytes()),
}


def cut_off(folder: Path) -> list[str]:
    """Return the files that are there under their own names, and cannot be read."""
    found = []
    for file in folder.rglob("*"):
        if file.suffix in READERS and not any(one.startswith(".") for one in file.parts):
            try:
                READERS[file.suffix](file)
            except Exception as error:  # noqa: BLE001 (whatever goes wrong is the result)
                found.append(f"{file.name} cannot be read: {error}")
    return found


class Area:
    """An area, what it leaves undisturbed, and how many operations and seconds it takes."""

    def __init__(self, name: str, seed: int) -> None:
        self.name, self.task = name, AREAS[name]
        self.drawn = random.Random(f"{name} {seed}")
        self.errors = itertools.cycle(FAULTS)
        self.tally = Tally()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "warm").mkdir()
            self.task(Path(folder, "warm"))  # imports what is imported late
            started = time.perf_counter()
            told = Path(folder, "count")
            code = self._forked(Path(folder, "again"), at=0, told=told)
            self.seconds = time.perf_counter() - started
            if code:
                raise RuntimeError(f"{name} fails undisturbed; see {folder}")
            self.operations = int(told.read_text())
            self.expected = snapshot(Path(folder, "again"))

    def kill(self) -> None:
        """Do one case with one to four kills."""
        self._case(["kill"] * self.drawn.choice((1, 2, 4)))

    def err(self) -> None:
        """Do one case with an error of the machine, each kind in turn."""
        self._case([next(self.errors)])

    def _case(self, faults: list[str]) -> None:
        told = []
        with tempfile.TemporaryDirectory() as base:
            folder = Path(base, "work")
            for fault in faults:
                at = self.drawn.randint(1, self.operations)
                late = fault == "kill" and self.drawn.random() < _DRAWN_TIMES
                delay = self.drawn.uniform(0, self.seconds) if late else None
                code = self._forked(folder, at=0 if late else at, fault=fault, delay=delay)
                told.append(f"{fault} at {f'{delay:.3f} s' if late else at}: exit {code}")
                self.tally.counts["kills" if code == _DIED else fault] += code != 0
                self.tally.faults += [f"{self.name}: {told}: {one}" for one in cut_off(folder)]
                if code == _FOREIGN:
                    self.tally.faults.append(f"{self.name}: {told}: a foreign error")
            code = self._forked(folder, at=0)
            if code:
                self.tally.faults.append(f"{self.name}: {told}: then exit {code}")
            elif (found := snapshot(folder)) != self.expected:
                differ = [
                    one
                    for one in sorted({*found, *self.expected})
                    if found.get(one) != self.expected.get(one)
                ]
                self.tally.faults.append(f"{self.name}: {told}: {differ} differ")
        self.tally.counts["cases"] += 1

    def _forked(
        self,
        folder: Path,
        *,
        at: int,
        fault: str = "kill",
        delay: float | None = None,
        told: Path | None = None,
    ) -> int:
        """Run the task in a process of its own; return its exit code, or minus the signal."""
        folder.parent.mkdir(parents=True, exist_ok=True)
        log = os.open(folder.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        process = os.fork()
        if not process:
            os._exit(self._run(folder, log, at=at, fault=fault, told=told))
        os.close(log)
        if delay is not None:
            time.sleep(delay)
            os.kill(process, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if status == _FOREIGN or (status and not at and delay is None):
            print((folder.parent / "log").read_text()[-3000:], file=sys.stderr)
        return status

    def _run(
        self, folder: Path, log: int, *, at: int, fault: str = "kill", told: Path | None = None
    ) -> int:
        folder.mkdir(exist_ok=True)
        os.dup2(log, 1)
        os.dup2(log, 2)
        OPERATIONS.install()
        OPERATIONS.count, OPERATIONS.at, OPERATIONS.fault = 0, at, fault
        try:
            self.task(folder)
        except (NNCFXError, OSError, MemoryError, torch.OutOfMemoryError):
            with os.fdopen(log, "w") as file:
                traceback.print_exc(file=file)
            return _RAISED
        except BaseException:  # noqa: BLE001 (told by the exit code)
            with os.fdopen(log, "w") as file:
                traceback.print_exc(file=file)
            return _FOREIGN
        if told is not None:
            told.write_text(str(OPERATIONS.count))
        return 0


def prepare() -> None:
    """Make what is measured short, and threads few, so that processes can be forked."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    quick = functools.partial(TimingPlan, warm_up_seconds=0.0)
    candidate_timer.TimingPlan = lambda **given: quick(**given | {"seconds": 0.01})  # type: ignore[misc, assignment]
    build_evidence._PROOF_SECONDS = 0.01  # type: ignore[misc]  # noqa: SLF001 (the time to measure for)


def disturb(name: str, kills: int, errors: int, seed: int = 0) -> Tally:
    """Return what came of at least `kills` kills and `errors` errors in one area."""
    area = Area(name, seed)
    while area.tally.counts["kills"] < kills:
        area.kill()
    for _ in range(errors):
        area.err()
    return area.tally


def main() -> int:
    """Disturb every area and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="in all areas together")
    parser.add_argument("--errors", type=int, default=60, help="in all areas together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--areas", nargs="+", default=list(AREAS))
    options = parser.parse_args()
    prepare()
    faults: list[str] = []
    print("| area | kills | ENOSPC | EIO | memory | device memory | cases | differ |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    shares = len(options.areas)
    for name in options.areas:
        tally = disturb(
            name, -(-options.kills // shares), -(-options.errors // shares), options.seed
        )
        told = [tally.counts[one] for one in ("kills", *FAULTS, "cases")]
        print(f"| {name} | {' | '.join(map(str, told))} | {len(tally.faults)} |", flush=True)
        faults += tally.faults
    print("\n".join(faults))
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
