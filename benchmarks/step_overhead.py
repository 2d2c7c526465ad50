"""Time a training step under each algorithm against the plain step, eager and compiled.

ResNet-18 for CIFAR, CPU time of one thread; the two sides take turns, ratios are those of medians.
With --alone all of a step but the network is timed: every weight is read as the network would read
it, the loss of the algorithm is added, gradients go back, the optimizer moves. The difference from
that without algorithm is what compression costs, free of the noise of the convolutions.
With --compiled a training step of a small network goes through Inductor once for each algorithm,
and its loss is compared with the eager one.

OMP_NUM_THREADS=1 python benchmarks/step_overhead.py --algorithms magnitude_sparsity --rounds 15
OMP_NUM_THREADS=1 python benchmarks/step_overhead.py --alone --plain 2700
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from quantization_cost import cifar_resnet18
from rich.progress import track
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx

Step: TypeAlias = Callable[[], Tensor]

CONFIGS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "magnitude_sparsity": {"params": {"sparsity_target": 0.9}},
        "rb_sparsity": {"sparsity_init": 0.5},
        "const_sparsity": {},
        "nm_sparsity": {},
        "movement_sparsity": {
            "params": {
                "warmup_start_epoch": 0,
                "warmup_end_epoch": 2,
                "importance_regularization_factor": 0.1,
                "enable_structured_masking": False,
            }
        },
        "filter_pruning": {"pruning_init": 0.25},
        "knowledge_distillation": {"type": "softmax"},
        "weight_clustering": {},
        "lc": {"schemes": [{"name": "Prune"}]},
        "quantization": {"initializer": {"range": {"num_init_samples": 0}}},
    }
)
"""The algorithms, and what their configs need beside the defaults."""


def step_of(model: nn.Module, batch: int, algorithm: str, *, is_compiled: bool = False) -> Step:
    """Return one step of SGD on `model`, under `algorithm` unless that is "", as a call.

    The call returns the loss. The forward and the loss are compiled, the optimizer is not.
    """
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, 32, 32, generator=generator)
    labels = torch.arange(batch) % 10
    items = [{"algorithm": algorithm, **CONFIGS[algorithm]}] if algorithm else []
    controller, model = nncfx.create_compressed_model(model, {"compression": items}, images[:1])
    controller.scheduler.epoch_step()
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.01), momentum=0.9)
    model.train()

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(model(images), labels) + controller.loss()

    loss_now = torch.compile(loss_of) if is_compiled else loss_of

    def step() -> Tensor:
        controller.scheduler.step()
        loss: Tensor = loss_now(images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def weights_step(model: nn.Module, algorithm: str) -> Step:
    """Return a step of SGD on `model` without its forward and backward, as a call."""
    inputs = torch.zeros(1, 3, 32, 32)
    items = [{"algorithm": algorithm, **CONFIGS[algorithm]}] if algorithm else []
    controller, model = nncfx.create_compressed_model(model, {"compression": items}, inputs)
    controller.scheduler.epoch_step()
    optimizer = torch.optim.SGD(controller.parameter_groups(lr=0.01), momentum=0.9)
    model.train()
    readers = [one for one in model.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    generator = torch.Generator().manual_seed(0)
    pulls = [torch.randn(one.weight.shape, generator=generator) for one in readers]

    def step() -> Tensor:
        controller.scheduler.step()
        weights = [one.weight for one in readers]
        loss: Tensor = controller.loss()
        optimizer.zero_grad()
        heads, grads = [*weights], [*pulls]
        if loss.requires_grad:
            heads, grads = [*heads, loss], [*grads, torch.ones_like(loss)]
        torch.autograd.backward(heads, grads)
        optimizer.step()
        return loss.detach()

    return step


def ratio(plain: Step, compressed: Step, rounds: int, what: str) -> tuple[float, float]:
    """Return the median CPU seconds of `plain`, and the ratio of `compressed` to it."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in track(range(rounds + 2), what):
        for side in (0, 1) if number % 2 else (1, 0):
            begun = time.process_time()
            (plain, compressed)[side]()
            times[side].append(time.process_time() - begun)
    medians = [statistics.median(one[2:]) for one in times]
    return medians[0], medians[1] / medians[0]


def small_network() -> nn.Module:
    """Return three convolutions with batch norms and a classifier."""
    layers: list[nn.Module] = []
    for before, channels, stride in ((3, 16, 2), (16, 32, 1), (32, 32, 4)):
        conv = nn.Conv2d(before, channels, 3, stride=stride, padding=1, bias=False)
        layers += [conv, nn.BatchNorm2d(channels), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a model with the same weights each time."""
    torch.manual_seed(0)
    return make()


def eager_rows(algorithms: list[str], batch: int, rounds: int) -> list[str]:
    """Return the table of step ratios."""
    rows = ["| algorithm | plain ms | ratio |", "|---|---:|---:|"]
    for name in algorithms:
        plain = step_of(seeded(cifar_resnet18), batch, "")
        compressed = step_of(seeded(cifar_resnet18), batch, name)
        seconds, times = ratio(plain, compressed, rounds, name)
        rows.append(f"| {name} | {seconds * 1e3:.0f} | {times:.3f} |")
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def alone_rows(algorithms: list[str], rounds: int, plain_ms: float) -> list[str]:
    """Return the table of what the algorithms add to a step that takes `plain_ms` in all."""
    rows = ["| algorithm | added ms | of a plain step |", "|---|---:|---:|"]
    for name in algorithms:
        bare = weights_step(seeded(cifar_resnet18), "")
        seconds, times = ratio(bare, weights_step(seeded(cifar_resnet18), name), rounds, name)
        added = seconds * (times - 1) * 1e3
        rows.append(f"| {name} | {added:.0f} | {added / plain_ms:.1%} |")
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def compiled_rows(algorithms: list[str], batch: int, steps: int = 3) -> list[str]:
    """Return the table of what compiled steps give, against eager ones."""
    rows = [
        "| algorithm | compile and first step, s | largest relative difference of the loss |",
        "|---|---:|---:|",
    ]
    for name in track(algorithms, "compiling"):
        torch._dynamo.reset()  # noqa: SLF001 (torch's documented name)
        losses: list[list[float]] = []
        seconds = 0.0
        for is_compiled in (False, True):
            step = step_of(seeded(small_network), batch, name, is_compiled=is_compiled)
            torch.manual_seed(1)
            begun = time.perf_counter()
            losses.append([float(step())])
            seconds = time.perf_counter() - begun
            losses[-1] += [float(step()) for _ in range(steps - 1)]
        worst = max(abs(a - b) / abs(a) for a, b in zip(*losses, strict=True))
        rows.append(f"| {name} | {seconds:.0f} | {worst:.1e} |")
        sys.stderr.write(f"{rows[-1]}\n")
    return rows


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--algorithms", nargs="*", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--compiled", action="store_true", help="compile one step of each instead")
    parser.add_argument("--alone", action="store_true", help="time all but the network instead")
    parser.add_argument("--plain", type=float, default=2700, help="ms of a plain step, to divide")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.alone:
        rows = alone_rows(chosen.algorithms, chosen.rounds, chosen.plain)
    elif chosen.compiled:
        rows = compiled_rows(chosen.algorithms, chosen.batch)
    else:
        rows = eager_rows(chosen.algorithms, chosen.batch, chosen.rounds)
    sys.stdout.write("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
