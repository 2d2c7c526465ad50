"""Train the networks of `campaign.toml` in the background, for days if need be.

One run after another, niced; each may be killed at any moment and goes on where its last
checkpoint is, to the same bits. A run over its budget of minutes waits until the others are done.
What ends well is written to `results/`. Several processes may train side by side, each another
run: a GPU is kept busy by eight or more (under NVIDIA's MPS).

python benchmarks/campaign.py run                 # until all is done; --minutes 60: an hour of it
python benchmarks/campaign.py run --only NAME     # one of them; repeat --only for more
python benchmarks/campaign.py pause               # returns when nothing is computed any more
python benchmarks/campaign.py resume
python benchmarks/campaign.py status
python benchmarks/campaign.py table               # the results; and results.svg
"""

import argparse
import contextlib
import fcntl
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import torch
from campaign_results import (
    DATA,
    RESULTS,
    ROOT,
    claims,
    hits,
    is_written,
    loaded,
    percent,
    write_results,
)
from campaign_runs import LIST, Run, read_runs
from pretrained import PRETRAINED, cifar10_train
from torch import nn
from torch.nn.functional import cross_entropy

import nncfx
from nncfx.algorithms.knowledge_distillation.controller import KnowledgeDistillationController
from nncfx.thinning import ThinRecipe
from nncfx.thinning.files.recipe import recipes_of
from nncfx.training import AugmentedImages, Training, TrainingProgress

FOLDER: Final = ROOT / "out" / "campaign"
CALIBRATION_STEPS: Final = 4
"""Batches that show quantizers their ranges."""
_IMAGE: Final = torch.zeros(1, 3, 32, 32)
_MINUTE: Final = 60
_PATIENCE: Final = 120
"""Seconds that `pause` waits for the step that is being computed."""


class Place:
    """The folder of a run: its checkpoint, and one line of JSON for every progress."""

    def __init__(self, run: Run) -> None:
        """Name the folder after the settings too: changed ones begin anew."""
        self.run = run
        self.folder = FOLDER / f"{run.name}-{run.digest}"
        self.checkpoint = self.folder / "training.ckpt"
        self.journal = self.folder / "progress.jsonl"
        self.verdict = self.folder / "verdict.txt"
        self.paused = self.folder / "paused"

    @contextlib.contextmanager
    def taken(self) -> Iterator[bool]:
        """Hold the lock of the run; yield whether it was free: one process trains it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    @property
    def is_trained(self) -> bool:
        """Whether a process trains it just now."""
        with self.taken() as is_free:
            return not is_free

    def progress(self) -> list[dict[str, Any]]:
        """Return the lines so far; one that a kill tore is left out, as is what was done again."""
        rows: list[dict[str, Any]] = []
        for line in self.journal.read_text().splitlines() if self.journal.exists() else ():
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                rows = [one for one in rows if one["step"] < row["step"]]
                rows.append(row)
        return rows

    @property
    def minutes(self) -> float:
        """How long was trained so far."""
        rows = self.progress()
        return rows[-1]["seconds"] / _MINUTE if rows else 0.0

    @property
    def is_done(self) -> bool:
        """Whether its results, or its verdict, are written."""
        return self.verdict.exists() if self.run.held_out else is_written(self.run)

    def judge(self, verdict: str) -> bool:
        """Write down, and show, what the run came to; return True."""
        self.verdict.write_text(verdict + "\n")
        print(f"{self.run.name}: {verdict}", flush=True)
        return True

    def note(self, progress: TrainingProgress, seconds: float) -> None:
        """Add a line to the journal, and show it."""
        row = {**asdict(progress), "seconds": round(seconds, 1)}
        with self.journal.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(
            f"{self.run.name}: step {progress.step}/{progress.steps}, loss {progress.loss:.4f}, "
            f"level {progress.level:.3f}, {progress.examples_per_s:.0f} images/s",
            flush=True,
        )


def images_of(run: Run, data: Path, device: str) -> tuple[AugmentedImages, torch.Tensor]:
    """Return the batches of a run, and the images and labels that are held out of it."""
    pixels, labels = cifar10_train(data)
    mean, std = (torch.tensor(one) for one in PRETRAINED[run.network].normalization)
    kept = len(pixels) - run.held_out
    batches = AugmentedImages(
        pixels=torch.from_numpy(pixels[:kept]).to(device),
        labels=labels[:kept].to(device),
        mean=mean,
        std=std,
        batch=run.batch,
        seed=run.seed,
        mixup=run.mixup,
    )
    return batches, (torch.from_numpy(pixels[kept:]), labels[kept:])


def _thinned(model: nn.Module) -> tuple[nn.Module, list[ThinRecipe]]:
    """Return the model without the filters that are zero, and how to make it."""
    result = nncfx.thin(model.cpu(), _IMAGE)
    return result.model, [result.recipe]


def _of_results(name: str, run: Run, data: Path) -> nn.Module:
    return loaded(RESULTS / f"{name}.nncfx", run.network, data)


def _network(run: Run, data: Path) -> tuple[nn.Module, list[ThinRecipe]]:
    """Return the network that is trained, without what is taken out at once."""
    if run.start:
        network = _of_results(run.start, run, data)
    else:
        network = PRETRAINED[run.network].load(data)
    recipes = list(recipes_of(network))
    for config in run.thin_configs():
        controller, _ = nncfx.create_compressed_model(network, config, _IMAGE)
        network, more = _thinned(controller.strip().eval())
        recipes += more
    return network, recipes


def _mean(run: Run, data: Path) -> nn.Module:
    """Return the first of the networks of `mean_of`, with the means of all of them."""
    networks = [_of_results(name, run, data) for name in run.mean_of]
    states = [one.state_dict() for one in networks]
    for name, value in networks[0].state_dict().items():
        if value.is_floating_point():
            value.copy_(torch.stack([one[name] for one in states]).mean(0))
    return networks[0]


class MeanOf(nn.Module):
    """Answers the mean of what several networks answer."""

    def __init__(self, networks: Iterable[nn.Module]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the mean of the answers, one row per image."""
        return torch.stack([network(images) for network in self.networks]).mean(0)


def _teacher(run: Run, data: Path) -> nn.Module:
    if not run.teacher:
        return PRETRAINED[run.network].load(data)
    names = [run.teacher] if isinstance(run.teacher, str) else run.teacher
    return MeanOf(_of_results(name, run, data) for name in names)


class Runner:
    """Trains runs until told to stop.

    Attributes:
        is_asked_to_stop: Set by a signal; the step being computed is finished first.
    """

    def __init__(self, data: Path, minutes: float | None, device: str) -> None:
        """Stop after so many `minutes`, if given."""
        self._data, self._device = data, device
        self._end = None if minutes is None else time.monotonic() + minutes * _MINUTE
        self.is_asked_to_stop = False

    def should_stop(self, place: Place, until: float | None = None) -> bool:
        """Wait while there is a pause; return whether to stop, or to stop this run, now."""
        while (FOLDER / "pause").exists() and not self.is_asked_to_stop:
            place.paused.touch()
            time.sleep(1)
        place.paused.unlink(missing_ok=True)
        ends = [one for one in (self._end, until) if one is not None]
        return self.is_asked_to_stop or any(time.monotonic() >= one for one in ends)

    def train(self, run: Run, *, most: float | None) -> bool:
        """Train one run to its end and write its results; return whether it got there.

        Args:
            run: The run.
            most: Minutes after which it is laid aside.
        """
        place = Place(run)
        with place.taken() as is_free:
            return is_free and self._train(place, most)

    def _train(self, place: Place, most: float | None) -> bool:
        run = place.run
        if run.mean_of:
            network = _mean(run, self._data)
            return self._write(place, network, list(recipes_of(network)))
        torch.manual_seed(run.seed)
        batches, held_out = images_of(run, self._data, self._device)
        network, recipes = _network(run, self._data)
        network.to(self._device, memory_format=torch.channels_last)
        controller, _ = nncfx.create_compressed_model(
            network,
            run.config(),
            _IMAGE.to(self._device),
            calibration_batches=[batches(step) for step in range(CALIBRATION_STEPS)],
        )
        if run.teacher_weight:
            distillation = controller["knowledge_distillation"]
            assert isinstance(distillation, KnowledgeDistillationController)  # noqa: S101 (so named)
            distillation.learn_from(_teacher(run, self._data))
        training = Training(controller, batches, cross_entropy, run.recipe(), place.checkpoint)
        before, began = place.minutes * _MINUTE, time.monotonic()
        until = None if most is None else began + max(0.0, most * _MINUTE - before)
        if not training.run(
            should_stop=functools.partial(self.should_stop, place, until),
            on_progress=lambda it: place.note(it, before + time.monotonic() - began),
        ):
            return False
        trained = controller.strip().eval()
        if run.algorithm == "filters":
            trained, recipe = _thinned(trained)
            recipes += recipe
        if not run.held_out:
            return self._write(place, trained, recipes)
        pixels, labels = held_out
        images = batches.normalised(pixels)
        return place.judge(f"{percent(hits(trained.cpu(), images, labels)):.2f} %")

    def _write(self, place: Place, trained: nn.Module, recipes: list[ThinRecipe]) -> bool:
        files = write_results(place.run, trained, recipes, self._data)
        return place.judge(", ".join(one.name for one in files))

    def train_all(self, runs: list[Run]) -> None:
        """Train the runs in their order, those over their budget at last."""
        for budget in (True, False):
            for run in runs:
                place = Place(run)
                if place.is_done or (budget and place.minutes >= run.minutes):
                    continue
                if self.should_stop(place):
                    return
                self.train(run, most=run.minutes if budget else None)


def run_command(options: argparse.Namespace, runs: list[Run]) -> None:
    """Train, at the lowest priority, with waiting threads asleep."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # threads that spin where others work too cost more than they bring
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 (this very command)
    _step_back()
    torch.set_num_threads(options.threads)
    torch.backends.cudnn.benchmark = True  # the shapes never change
    runner = Runner(options.data, options.minutes, options.device)

    def stop(*_: object) -> None:
        runner.is_asked_to_stop = True

    for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, stop)
    runner.train_all(runs)


def pause_command(_: argparse.Namespace, runs: list[Run]) -> None:
    """Let the running processes wait, and return when they do."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "pause").touch()
    places = [Place(run) for run in runs]
    for _second in range(_PATIENCE):
        if all(place.paused.exists() for place in places if place.is_trained):
            return
        time.sleep(1)
    sys.exit(f"The campaign still computes after {_PATIENCE} s; it will pause after this step.")


def resume_command(*_: object) -> None:
    """Let the running processes go on."""
    (FOLDER / "pause").unlink(missing_ok=True)


def status_command(_: argparse.Namespace, runs: list[Run]) -> None:
    """Show how far each run is."""
    if (FOLDER / "pause").exists():
        print("paused")
    for run in runs:
        place = Place(run)
        rows = place.progress()
        if place.is_done and not rows:  # trained elsewhere, or the folder was cleaned
            print(f"{run.name}: done, seed {run.seed}")
            continue
        last = rows[-1] if rows else {"step": 0, "examples_per_s": 0.0, "seconds": 0.0}
        left = (run.steps - last["step"]) * run.batch / max(last["examples_per_s"], 1e-9) / _MINUTE
        rest = f", {left:.0f} min left" if rows and not place.is_done else ""
        verdict = place.verdict.read_text().strip() if place.verdict.exists() else ""
        print(
            f"{run.name}: {last['step']}/{run.steps} steps, {place.minutes:.0f} of "
            f"{run.minutes:g} min{', running' if place.is_trained else ''}{rest} {verdict}"
        )


def table_command(_: argparse.Namespace, runs: list[Run]) -> None:
    """Print the results as Markdown, and draw losses and levels if matplotlib is there."""
    print("| file | accuracy | points | parameters | footprint | on disk | fewer MACs |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for one in claims():
        points = one["accuracy"] - one["dense_accuracy"]
        print(
            f"| {one['name']} | {one['accuracy']:.2f} | {points:+.2f} | "
            f"{one['parameters']:,} | {one['footprint_times']:.1f}x | {one['disk_times']:.1f}x | "
            f"{one['macs_times']:.2f}x |"
        )
    with contextlib.suppress(ImportError):
        draw(runs)


def draw(runs: list[Run]) -> None:
    """Draw what each result costs, beside the losses of trainings that are here: `results.svg`.

    Raises:
        ImportError: matplotlib is not there.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 (the table does without)

    progress = {f"{run.name}, seed {run.seed}": Place(run).progress() for run in runs}
    trained = {name: rows for name, rows in progress.items() if rows}
    panels = 2 if trained else 1
    figure = Figure(figsize=(5 * panels, 4), layout="constrained")
    results, *others = figure.subplots(1, panels, squeeze=False)[0]
    results.set(xlabel="times smaller on disk", xscale="log")
    results.set(ylabel="points against the dense network")
    for network in sorted({one["network"] for one in claims()}):
        mine = [one for one in claims() if one["network"] == network]
        times = [one["disk_times"] for one in mine]
        points = [one["accuracy"] - one["dense_accuracy"] for one in mine]
        results.scatter(times, points, label=network)
    results.axhline(0, color="0.7", linewidth=1)
    results.legend()
    for losses in others:
        losses.set(xlabel="step", ylabel="training loss", yscale="log")
        for name, rows in trained.items():
            steps, values = [row["step"] for row in rows], [row["loss"] for row in rows]
            losses.plot(steps, values, linewidth=0.8, label=name)
        losses.legend(fontsize=5)
    FOLDER.mkdir(parents=True, exist_ok=True)
    figure.savefig(FOLDER / "results.svg")


COMMANDS: Final = {
    "run": run_command,
    "pause": pause_command,
    "resume": resume_command,
    "status": status_command,
    "table": table_command,
}


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data/ and weights/")
    parser.add_argument("--list", type=Path, default=LIST, help="the list of runs")
    parser.add_argument("--only", action="append", help="name of runs; all of the list without")
    parser.add_argument("--minutes", type=float, help="stop after so many")
    # oneDNN's backward of convolutions spins until all threads are there: on a machine that
    # others use one thread does two and a half times as much as two (30 and 77 images/s)
    parser.add_argument("--threads", type=int, default=1, help="1; more on a quiet machine")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    runs = read_runs(options.list)
    if unknown := set(options.only or ()) - {run.name for run in runs}:
        parser.error(f"no run {sorted(unknown)} in {options.list}")
    COMMANDS[options.command](
        options, [run for run in runs if not options.only or run.name in options.only]
    )


def _step_back() -> None:
    """Leave the processor to whoever wants it.

    Linux with autogroups weighs sessions against each other, and niceness within one only. A
    session that is not its own, such as a shell's, is left alone: start it by `setsid`.
    """
    os.nice(19 - os.nice(0))
    group = Path("/proc/self/autogroup")
    if group.exists() and os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            group.write_text("19")


if __name__ == "__main__":
    main()
