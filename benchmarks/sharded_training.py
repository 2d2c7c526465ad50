"""Training that compresses a sharded model gives the masks and ranges of one process.

    python benchmarks/sharded_training.py equal [--ranks 2 4] [--ways ddp before after tensor]
    python benchmarks/sharded_training.py checkpoint
    python benchmarks/sharded_training.py time [--rows 64]

`equal` trains a small network for some steps with each algorithm, once in one process and once on
gloo ranks that divide each minibatch: under DistributedDataParallel, under FSDP2 sharded before or
after the algorithm was created, under tensor parallel. It prints how many masks (and codes) are
equal, and by how much scales and weights differ. `checkpoint` saves on one rank, two and four, as
one file and as shards, and loads on one, two and four: state and outputs have to be the same bits,
and the step after that equal but for rounding. `time` compares steps under
FSDP2 with hooks and without.
"""

import argparse
import copy
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import nncfx

STEPS, BATCH = 4, 8
ITEMS: Mapping[str, Mapping[str, Any]] = {
    "magnitude_sparsity": {"sparsity_init": 0.4},
    "const_sparsity": {},
    "nm_sparsity": {},
    "block_pruning": {"params": {"block": [2, 2]}},
    "rb_sparsity": {"sparsity_init": 0.3},
    "movement_sparsity": {
        "params": {
            "warmup_start_epoch": 1,
            "warmup_end_epoch": 3,
            "importance_regularization_factor": 0.1,
        }
    },
    "filter_pruning": {"pruning_init": 0.25},
    "weight_clustering": {},
    "quantization": {"initializer": {"range": {"num_init_samples": 16}}},
    "knowledge_distillation": {"type": "mse"},
    "lc": {"schemes": [{"name": "Prune"}, {"name": "Cluster", "bits": 3}]},
}


class Network(nn.Module):
    """Two convolutions and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of four classes."""
        x = F.relu(self.second(F.relu(self.first(x))))
        return self.down(F.relu(self.up(x.mean((2, 3)))))


def network() -> Network:
    """Return the same network always."""
    torch.manual_seed(0)
    return Network()


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Return a minibatch, the same in every process."""
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(BATCH, 3, 8, 8, generator=generator)
    return x, torch.randint(4, (BATCH,), generator=generator)


def shard(model: nn.Module) -> nn.Module:
    """Shard each layer, and the rest, by FSDP2."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for name in ("first", "second", "up", "down"):
        fully_shard(getattr(model, name), mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def divide(model: nn.Module) -> nn.Module:
    """Divide the linear layers by tensor parallel."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan: Any = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def created(algorithm: str, model: nn.Module) -> tuple[Any, nn.Module]:
    """Return controller and model with one algorithm."""
    config = {"compression": {"algorithm": algorithm, **ITEMS[algorithm]}}
    inputs = batch(99)[0]
    return nncfx.create_compressed_model(model, config, inputs[:1], calibration_batches=[inputs])


def built(algorithm: str, way: str) -> tuple[Any, nn.Module, nn.Module]:
    """Return controller, model, and what is called in training."""
    model: nn.Module = network()
    if way == "before":
        model = shard(model)
    if way == "tensor":
        model = divide(model)
    controller, model = created(algorithm, model)
    called = model
    if way == "after":
        shard(model)
    if way == "ddp":
        # scores that freeze leave the gradients
        freezes = algorithm == "movement_sparsity"
        called = DistributedDataParallel(model, find_unused_parameters=freezes)
    return controller, model, called


def trained(algorithm: str, way: str) -> tuple[Any, nn.Module]:
    """Train and return controller and model."""
    controller, model, called = built(algorithm, way)
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1), 0.1, foreach=False)
    for number in range(STEPS):
        step(controller, called, optimizer, number, way)
    return controller, model


def step(
    controller: Any,  # noqa: ANN401 (any controller)
    called: nn.Module,
    optimizer: torch.optim.Optimizer,
    number: int,
    way: str,
) -> None:
    """Train on this process's share of a minibatch."""
    share, rank = (
        (1, 0) if way in ("alone", "tensor") else (dist.get_world_size(), dist.get_rank())
    )
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    x, y = (one.chunk(share)[rank] for one in batch(number))
    optimizer.zero_grad()
    torch.manual_seed(number)  # noise of masks is drawn alike
    loss = F.cross_entropy(called(x), y) + controller.loss()
    loss.backward()
    optimizer.step()


def whole(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state_dict with every value, detached."""
    return {
        name: (one.full_tensor() if isinstance(one, DTensor) else one).detach().clone()
        for name, one in state.items()
    }


def in_process(rank: int, ranks: int, folder: str, task: str, args: Sequence[Any]) -> None:
    """Run a task of `TASKS` as one rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    meet = f"file://{folder}/meet-{task}-{ranks}-{'-'.join(map(str, args))}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=ranks)
    try:
        TASKS[task](Path(folder), *args)
    finally:
        dist.destroy_process_group()
    # Meshes keep the group's threads, and one that frees a tensor while Python ends aborts the
    # process: see https://github.com/pytorch/pytorch/pull/179291
    os._exit(0)


def spawn(ranks: int, folder: str, task: str, *args: object) -> None:
    """Run a task on so many ranks; forked, they need not import torch again."""
    torch.multiprocessing.start_processes(
        in_process, (ranks, folder, task, args), nprocs=ranks, start_method="fork"
    )


def train_task(folder: Path, way: str, *algorithms: str) -> None:
    """Train each of `algorithms` and write what came of it, each rank its own."""
    for algorithm in algorithms:
        try:
            controller, model = trained(algorithm, way)
            found: Any = (
                whole(model.state_dict()),
                controller.level if controller.has_level else 0,
            )
        except Exception as error:  # noqa: BLE001 (reported)
            found = f"{type(error).__name__}: {error}"
        torch.save(found, folder / f"{algorithm}-{way}-{dist.get_world_size()}-{dist.get_rank()}")


@dataclass
class Difference:
    """How far ranks are from one process.

    Attributes:
        masks: Masks, codes and flags that are equal, bitwise.
        of: How many there are.
        scales: The largest difference of other tensors of hooks, relative.
        weights: The largest difference of weights, relative.
    """

    masks: int = 0
    of: int = 0
    scales: float = 0.0
    weights: float = 0.0

    @property
    def is_good(self) -> bool:
        """Say whether masks are equal and the rest is equal but for rounding."""
        return self.masks == self.of and max(self.scales, self.weights) < LIMIT


LIMIT = 1e-6
FORMS = ("file", "shards")


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Difference:
    """Compare two whole state_dicts."""
    found = Difference()
    for name, a in one.items():
        b = other[name]
        if "_nncf" in name and (name.endswith(("mask", "flags")) or not a.is_floating_point()):
            found.of += 1
            found.masks += torch.equal(a, b)
            continue
        size = float(a.double().abs().max()) or 1.0
        apart = float((a.double() - b.double()).nan_to_num().abs().max()) if a.numel() else 0.0
        apart /= size
        if "_nncf" in name:
            found.scales = max(found.scales, apart)
        else:
            found.weights = max(found.weights, apart)
    return found


def equal(options: argparse.Namespace) -> int:
    """Compare every algorithm in every way with one process."""
    bad = 0
    print("| algorithm | " + " | ".join(f"{w}, {r}" for r in options.ranks for w in options.ways))
    print("|---|" + "---|" * len(options.ranks) * len(options.ways))
    with tempfile.TemporaryDirectory() as folder:
        spawn(1, folder, "train", "alone", *options.algorithms)
        for ranks in options.ranks:
            for way in options.ways:
                spawn(ranks, folder, "train", way, *options.algorithms)
        for algorithm in options.algorithms:
            alone = torch.load(f"{folder}/{algorithm}-alone-1-0")
            if isinstance(alone, str):
                print(f"| {algorithm} | alone: {alone}")
                bad += 1
                continue
            cells = []
            for ranks in options.ranks:
                for way in options.ways:
                    cell, is_good = compared(folder, algorithm, way, ranks, alone)
                    cells.append(cell)
                    bad += not is_good
            print(f"| {algorithm} | {' | '.join(cells)} |", flush=True)
    return bad


def compared(folder: str, algorithm: str, way: str, ranks: int, alone: Any) -> tuple[str, bool]:  # noqa: ANN401 (state and level)
    """Return a cell of the table, and whether it is as it should be."""
    paths = [f"{folder}/{algorithm}-{way}-{ranks}-{rank}" for rank in range(ranks)]
    found = [torch.load(path) for path in paths]
    if isinstance(found[0], str):
        return found[0][:300], False
    if any(isinstance(one, str) for one in found):
        return str(found), False
    apart = difference(alone[0], found[0][0])
    same = all(
        torch.equal(one, other[0][name])
        for other in found[1:]
        for name, one in found[0][0].items()
    )
    levels = {one[1] for one in found} == {alone[1]}
    told = f"{apart.masks}/{apart.of}, {apart.scales:.0e}, {apart.weights:.0e}"
    told += "" if same else ", ranks differ"
    told += "" if levels else f", levels {[one[1] for one in found]} not {alone[1]}"
    return told, apart.is_good and same and levels


def next_step(controller: Any, model: nn.Module, way: str) -> dict[str, Tensor]:  # noqa: ANN401 (any)
    """Train one step more; return the whole state."""
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.1), 0.1, foreach=False)
    step(controller, model.train(), optimizer, STEPS, way)
    return whole(model.state_dict())


def outputs(model: nn.Module) -> Tensor:
    """Return what the model makes of a minibatch."""
    with torch.no_grad():
        return model.eval()(batch(0)[0])


def save_task(folder: Path, way: str, *algorithms: str) -> None:
    """Train, save as one file and as shards, and write what a reader has to find."""
    ranks = dist.get_world_size()
    for algorithm in algorithms:
        controller, model = trained(algorithm, way)
        for form in FORMS:
            path = folder / f"{form}-{algorithm}-{ranks}"
            nncfx.save(path, model, controller, shards=form == "shards")
        expected = (whole(model.state_dict()), outputs(model), next_step(controller, model, way))
        if dist.get_rank() == 0:
            torch.save(expected, folder / f"expected-{algorithm}-{ranks}")


def load_task(folder: Path, way: str, written: int, *algorithms: str) -> None:
    """Load what so many ranks have written, and compare."""
    for algorithm in algorithms:
        expected = torch.load(folder / f"expected-{algorithm}-{written}")
        for form in FORMS:
            path = folder / f"{form}-{algorithm}-{written}"
            model = check_loaded(path, way, *expected)
        if algorithm == "filter_pruning":
            nncfx.thin(model)


def check_loaded(
    path: Path, way: str, state: Mapping[str, Tensor], out: Tensor, later: Mapping[str, Tensor]
) -> nn.Module:
    """Return a model that was loaded, and is found to be what was saved."""
    model: nn.Module = network()
    if way == "before":
        model = shard(model)
    controller, model = nncfx.load(path, model)
    if way == "after":
        shard(model)
    found = whole(model.state_dict())
    differ = [name for name, one in state.items() if not torch.equal(one, found[name])]
    if differ or len(found) != len(state) or not torch.equal(outputs(model), out):
        raise AssertionError((path, differ))
    apart = difference(later, next_step(controller, model, way))
    if not apart.is_good:
        raise AssertionError((path, apart))
    return model


def checkpoint(options: argparse.Namespace) -> int:
    """Save on some ranks and load on others."""
    told = f"{len(options.algorithms)} algorithms, {' and '.join(FORMS)}: equal"
    with tempfile.TemporaryDirectory() as folder:
        for written in (1, *options.ranks):
            way = "alone" if written == 1 else "after"
            spawn(written, folder, "save", way, *options.algorithms)
            for ranks in (1, *options.ranks):
                for way in ("before", "after"):
                    spawn(ranks, folder, "load", way, written, *options.algorithms)
                    print(f"{written} ranks -> {ranks}, {way}: {told}", flush=True)
    return 0


class Big(nn.Module):
    """Four linear layers of 512 x 512."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the layers make of `x`."""
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def time_task(folder: Path, rounds: int, rows: int) -> None:
    """Time steps with hooks and without, in turns."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    plain = Big()
    hooked = copy.deepcopy(plain)
    x = torch.randn(rows, 512)
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    _, model = nncfx.create_compressed_model(hooked, config, x[:1])
    steps = {}
    for name, one in (("plain", plain), ("hooks", model)):
        for layer in one.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(one, mesh=mesh)
        steps[name] = (one, torch.optim.SGD(one.parameters(), 0.01))
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in steps}
    for _ in range(rounds + 5):
        for name, (one, optimizer) in steps.items():
            dist.barrier()
            began = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()
            took[name].append((time.perf_counter() - began[0], time.process_time() - began[1]))
    took = {name: times[5:] for name, times in took.items()}  # warm by then
    if dist.get_rank() == 0:
        torch.save(took, folder / "took")


def timed(options: argparse.Namespace) -> int:
    """Print how much longer a step with hooks takes."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(2, folder, "time", options.rounds, options.rows)
        took = torch.load(f"{folder}/took")
    for number, clock in enumerate(("wall", "CPU")):
        plain, hooks = ([one[number] for one in took[name]] for name in ("plain", "hooks"))
        ratio = statistics.median(one / other for one, other in zip(hooks, plain, strict=True))
        print(
            f"{clock} time: plain {1000 * statistics.median(plain):.2f} ms, hooks "
            f"{1000 * statistics.median(hooks):.2f} ms; ratio of medians "
            f"{statistics.median(hooks) / statistics.median(plain):.3f}, of pairs {ratio:.3f}, "
            f"of the least {min(hooks) / min(plain):.3f}, {len(hooks)} pairs"
        )
    return 0


TASKS: Mapping[str, Any] = {
    "train": train_task,
    "save": save_task,
    "load": load_task,
    "time": time_task,
}


def main() -> int:
    """Do what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("equal", "checkpoint", "time"))
    parser.add_argument("--ranks", type=int, nargs="+", default=(2, 4))
    parser.add_argument("--ways", nargs="+", default=("ddp", "before", "after"))
    parser.add_argument("--algorithms", nargs="+", default=tuple(ITEMS))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rows", type=int, default=64, help="of a minibatch in each process")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    return {"equal": equal, "checkpoint": checkpoint, "time": timed}[options.what](options)


if __name__ == "__main__":
    sys.exit(main())
