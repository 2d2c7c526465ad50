"""How much sooner a search ends whose trials run side by side, and what a killed worker costs.

    python benchmarks/parallel_search.py time [--engine ray] [--seconds 2] [--workers 2]
    python benchmarks/parallel_search.py virtual [--workers 8]
    python benchmarks/parallel_search.py kills [--engine ray] [--kills 100]

`time` searches with trials that sleep, alone and side by side; `virtual` counts the rounds of many
searches in virtual time, in which proposals cost nothing (the curves are those of
search_efficiency.py); `kills` kills a worker in the middle of
a trial again and again, and holds the journal against one of which nothing was killed.
"""

import argparse
import heapq
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import search_efficiency

from nncfx.errors import MachineError
from nncfx.search import (
    CandidateStudy,
    Done,
    Executor,
    LocalExecutor,
    Measurement,
    Problem,
    Range,
    RayExecutor,
    SearchSettings,
    Space,
    SpaceSettings,
    find_level,
    search_level,
    search_space,
)
from nncfx.search.attempt import attempt

KNEES = (0.3, 0.5, 0.7, 0.85, 0.9, 0.95, 0.97, 0.99)
PROBLEM = Problem(
    space=Space([Range("a", 0.0, 1.0), Range("b", 0.0, 1.0), Range("c", 0.0, 1.0)]),
    objectives={"size": "minimize"},
    at_least={"accuracy": 0.9},
)


@dataclass(frozen=True)
class Level:
    """A trial of a level: sleeps, and has accuracy 0.91 at the knee."""

    knee: float
    seconds: float = 0.0

    def __call__(self, level: float) -> Measurement:
        """Return the accuracy, and the speed-up as the objective."""
        time.sleep(self.seconds)
        return Measurement(
            metric=max(0.1, 0.93 - 0.02 * (level / self.knee) ** 6), objective=1 / (1.05 - level)
        )


@dataclass(frozen=True)
class Point:
    """A trial of three layers' levels: the third bears most."""

    seconds: float = 0.0
    drawn: float = 0.0
    kill: Path | None = None
    chance: float = 0.0

    def __call__(self, candidate: Mapping[str, Any]) -> dict[str, float]:
        """Return accuracy and size; perhaps die on the way, as the counter in a file says."""
        time.sleep(self.seconds)
        if self.kill is not None and random.SystemRandom().random() < self.chance:
            with self.kill.open("a") as file:
                file.write("killed\n")
                file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        a, b, c = (float(candidate[name]) for name in "abc")
        loss = 0.06 * a**4 + 0.2 * b**3 + 0.03 * c**6
        return {"accuracy": 0.93 - loss, "size": 3 - (a + b + c)}


class VirtualExecutor:
    """Workers in virtual time: a trial takes a drawn time about one, proposals take none."""

    def __init__(self, workers: int, seed: int, spread: float = 0.1) -> None:
        """Begin at time 0."""
        self.workers, self.now = workers, 0.0
        self._drawn, self._spread = random.Random(seed), spread
        self._busy: list[tuple[float, int, float, Done]] = []

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        """Keep what is to be evaluated."""
        self._evaluate = evaluate

    def submit(self, key: int, argument: object, what: str) -> None:
        """Evaluate at once; the result is there later."""
        took = self._drawn.uniform(1 - self._spread, 1 + self._spread)
        done = Done(key=key, attempt=attempt(lambda: self._evaluate(argument), what))
        heapq.heappush(self._busy, (self.now + took, key, self.now, done))

    def wait(self, grace: float = 0.0) -> list[Done]:
        """Go on to when the next trial ends, and a little further."""
        self.now, _, begun, done = heapq.heappop(self._busy)
        found, until = [done], self.now + grace * (self.now - begun)
        while self._busy and self._busy[0][0] <= until:
            self.now, _, _, done = heapq.heappop(self._busy)
            found.append(done)
        return found

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Do nothing."""
        yield

    def close(self) -> None:
        """Forget what is under way."""
        self._busy = []


@dataclass
class Found:
    """What a search found.

    Attributes:
        seconds: How long it took.
        evaluations: How many trials ran.
        value: The objective of its choice.
    """

    seconds: float
    evaluations: int
    value: float


def levels(knee: float, seconds: float, executor: Executor | None, most: int = 10) -> Found:
    """Search one level."""
    trial = Level(knee, seconds)
    began = time.perf_counter()
    found = search_level(
        trial,
        threshold=0.91,
        maximize=True,
        at_zero=Level(knee)(0.0),
        settings=SearchSettings(max_evaluations=most),
        executor=executor,
    )
    value = 0.0 if found.chosen.measurement is None else found.chosen.measurement.objective
    return Found(time.perf_counter() - began, len(found.trials) - 1, value)


def curve(knee: float, shape: str, executor: Executor, most: int) -> Found:
    """Search the crossing of a curve, of which the objective is the level."""
    accuracy = search_efficiency.shapes(knee)[shape]
    found = find_level(
        accuracy,
        search_efficiency.THRESHOLD,
        at_zero=accuracy(0.0),
        max_evaluations=most,
        executor=executor,
    )
    return Found(0.0, len(found.evaluations), found.level)


def points(
    seed: int, trial: Point, executor: Executor | None, study: CandidateStudy | None = None
) -> Found:
    """Search three levels at once, with 24 evaluations."""
    settings = SpaceSettings(max_evaluations=24, seed=seed)
    began = time.perf_counter()
    found = search_space(trial, PROBLEM, settings=settings, executor=executor, study=study)
    size = (found.best.outcomes or {})["size"]
    return Found(time.perf_counter() - began, len(found.trials), size)


def engine(options: argparse.Namespace) -> Executor:
    """Return the executor asked for."""
    made = RayExecutor if options.engine == "ray" else LocalExecutor
    return made(options.workers, threads=1)


def tell(name: str, alone: Sequence[Found], beside: Sequence[Found]) -> None:
    """Print the ratios of searches side by side to searches alone."""
    time_ = sum(f.seconds for f in beside) / sum(f.seconds for f in alone)
    count = sum(f.evaluations for f in beside) / sum(f.evaluations for f in alone)
    values = [statistics.mean(f.value for f in found) for found in (alone, beside)]
    print(
        f"| {name} | {len(alone)} | {statistics.mean(f.seconds for f in alone):.2f} "
        f"| {statistics.mean(f.seconds for f in beside):.2f} | {time_:.3f} | {count:.2f} "
        f"| {values[0]:.4f} | {values[1]:.4f} |",
        flush=True,
    )


HEAD = (
    "| search | searches | alone | side by side | ratio of time | of evaluations "
    "| objective alone | side by side |\n|---|---|---|---|---|---|---|---|"
)


def timed(options: argparse.Namespace) -> int:
    """Time searches whose trials sleep; the start of the workers is not counted."""
    print(HEAD, flush=True)
    knees = KNEES[:: max(len(KNEES) // options.searches, 1)][: options.searches]
    with kept(engine(options)) as executor:
        alone = [levels(knee, options.seconds, None) for knee in knees]
        beside = [levels(knee, options.seconds, executor) for knee in knees]
        tell("one level", alone, beside)
        seeds = range(options.searches)
        alone = [points(seed, Point(options.seconds), None) for seed in seeds]
        beside = [points(seed, Point(options.seconds), executor) for seed in seeds]
        tell("three levels", alone, beside)
    return 0


class _Kept:
    """An executor that stays open, so that the start of its workers is not timed."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        executor.open(_any)

        self.workers = executor.workers
        self.wait, self.quiet = executor.wait, executor.quiet

    def open(self, evaluate: Callable[[Any], Any]) -> None:
        self._evaluate = evaluate

    def submit(self, key: int, argument: object, what: str) -> None:
        self._executor.submit(key, (self._evaluate, argument), what)

    def close(self) -> None:
        """Stay open."""


def _any(task: tuple[Callable[[Any], Any], Any]) -> Any:  # noqa: ANN401 (whatever it returns)
    return task[0](task[1])


@contextmanager
def kept(executor: Executor) -> Iterator[Any]:
    """Keep the workers running in the body."""
    found = _Kept(executor)
    try:
        yield found
    finally:
        executor.close()


def virtual(options: argparse.Namespace) -> int:
    """Count virtual time on one worker and on several."""
    print(HEAD, flush=True)

    def clocked(search: Callable[[Executor], Found], workers: int, seed: int) -> Found:
        executor = VirtualExecutor(workers, seed)
        found = search(executor)
        return Found(executor.now, found.evaluations, found.value)

    most = 10 if options.workers <= 2 else 20  # noqa: PLR2004 (what docs say keeps two busy)
    curves = [(k, s) for k in search_efficiency.KNEES for s in search_efficiency.shapes(k)]
    for name, runs in (
        ("one level", [lambda e, k=k: levels(k, 0.0, e, most) for k in KNEES]),
        ("curves", [lambda e, k=k, s=s: curve(k, s, e, most) for k, s in curves]),
        ("three levels", [lambda e, s=s: points(s, Point(), e) for s in range(options.searches)]),
    ):
        alone = [clocked(run, 1, seed) for seed, run in enumerate(runs)]
        beside = [clocked(run, options.workers, seed) for seed, run in enumerate(runs)]
        tell(name, alone, beside)
    return 0


def search_on(number: int, trial: Point, executor: Executor, journal: Path) -> bool:
    """Search on from `journal`; say whether to the end: one trial kills too many workers."""
    try:
        with CandidateStudy(journal) as study:
            points(number, trial, executor, study)
    except MachineError:
        return False
    return True


def killed(options: argparse.Namespace) -> int:
    """Kill workers mid-trial; count trials that are lost, doubled, or without a lease."""
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as base:
        while counts["kills"] < options.kills:
            number = counts["searches"]
            told, journal = Path(base, f"kills-{number}"), Path(base, f"{number}.jsonl")
            told.touch()
            trial = Point(0.02, kill=told, chance=options.chance)
            while not search_on(number, trial, engine(options), journal):
                counts["resumed"] += 1
            lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
            leases = [json.dumps(line["lease"]) for line in lines if "lease" in line]
            trials = [line for line in lines if "lease" not in line]
            ended = Counter(json.dumps(line["candidate"]) for line in trials)
            counts += Counter(
                searches=1,
                kills=len(told.read_text().splitlines()),
                trials=len(trials),
                lost=len(set(leases) - set(ended)),
                doubled=sum(count - 1 for count in ended.values()),
                failed=sum(line["state"] == "failed" for line in trials),
                unleased=len(set(ended) - set(leases)),
                missing=24 - len(trials),
            )
    print(f"| engine | {' | '.join(NAMES)} | seconds |")
    print(f"|---|{'---|' * (len(NAMES) + 1)}")
    told_ = " | ".join(str(counts[name]) for name in NAMES)
    print(f"| {options.engine} | {told_} | {time.perf_counter() - began:.0f} |")
    return any(counts[name] for name in NAMES[4:])


NAMES = (
    "kills",
    "resumed",
    "searches",
    "trials",
    "lost",
    "doubled",
    "failed",
    "unleased",
    "missing",
)


def main() -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("time", "virtual", "kills"))
    parser.add_argument("--engine", choices=("processes", "ray"), default="processes")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--searches", type=int, default=4)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--chance", type=float, default=0.2, help="that a trial kills its worker")
    options = parser.parse_args()
    options.workers = options.workers or (8 if options.what == "virtual" else 2)
    return {"time": timed, "virtual": virtual, "kills": killed}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
