"""Measure what calibration and quantization-aware training cost, in CPU time of one thread.

Calibration: `nncfx.quantize` on so many images against plain eager forwards on the same batches.
Training: a step of ResNet-18 for CIFAR under quantization against the plain step, eager and
compiled. The two sides take turns; ratios are those of medians.

OMP_NUM_THREADS=1 python benchmarks/quantization_cost.py --images 300
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from pytorchcv.models.resnet import resnet18
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from rich.progress import track
from torch import Tensor, nn

import nncfx

ITEM = {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}}


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of one call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def calibration(images: int, batch: int) -> tuple[float, float, float]:
    """Return CPU seconds of plain forwards and of `quantize`, and their ratio."""
    batches = [torch.randn(batch, 3, 224, 224) for _ in range(4)]
    count = -(-images // batch)
    stream = [batches[i % len(batches)] for i in range(count)]
    model = resnet18().eval()
    quantized = resnet18().eval()
    forwards = []

    def watched() -> object:
        # a plain forward before each batch, in turn with those of the calibration
        for one in track(stream, "calibrating"):
            with torch.no_grad():
                forwards.append(cpu_seconds(lambda one=one: model(one)))  # type: ignore[misc]
            yield one

    total = cpu_seconds(
        lambda: nncfx.quantize(quantized, watched(), samples=images, inplace=True)  # type: ignore[arg-type]
    )
    plain = sum(forwards)
    return plain, total - plain, (total - plain) / plain


def cifar_resnet18() -> nn.Module:
    """Return ResNet-18 with the usual stem for images of 32 pixels."""
    model = resnet18(num_classes=10, in_size=(32, 32))
    stem = model.features.init_block
    stem.conv.conv = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    stem.pool = nn.Identity()
    model.features.final_pool = nn.AdaptiveAvgPool2d(1)
    return model.train()


def stepper(model: nn.Module, batch: int, loss: Callable[[], Tensor] | None) -> Callable[[], None]:
    """Return a call that trains `model` for one step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))

    def step() -> None:
        optimizer.zero_grad()
        value = nn.functional.cross_entropy(model(x), y)
        (value if loss is None else value + loss()).backward()
        optimizer.step()

    return step


def training(
    build: Callable[[], nn.Module], batch: int, rounds: int, *, compiled: bool
) -> tuple[float, float]:
    """Return median CPU milliseconds of a plain and of a quantized step."""
    plain = build()
    controller, quantized = nncfx.create_compressed_model(
        build(), {"compression": ITEM}, torch.randn(2, 3, 32, 32)
    )
    controller.scheduler.epoch_step()
    quantized.train()
    models = [torch.compile(one) if compiled else one for one in (plain, quantized)]
    steps = [stepper(models[0], batch, None), stepper(models[1], batch, controller.loss)]
    times: list[list[float]] = [[], []]
    for _ in range(2):
        for step in steps:
            step()
    for index in track(range(rounds), "training"):
        for which in (0, 1) if index % 2 else (1, 0):
            times[which].append(cpu_seconds(steps[which]) * 1e3)
    first, second = (statistics.median(each) for each in times)
    return first, second


MODELS = {"ResNet-18": cifar_resnet18, "ResNet-20": resnet20_cifar10}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--train-batch", type=int, default=64)
    parser.add_argument("--models", nargs="*", choices=tuple(MODELS), default=tuple(MODELS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--skip", nargs="*", choices=("calibration", "eager", "compiled"), default=()
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| what | plain | quantized | ratio |\n|---|---:|---:|---:|")
    if "calibration" not in arguments.skip:
        plain, total, ratio = calibration(arguments.images, arguments.batch)
        print(
            f"| ResNet-18, calibration, {arguments.images} images | {plain:.1f} s | "
            f"{total:.1f} s | {ratio:.2f} |",
            flush=True,
        )
    for name in arguments.models:
        build = MODELS[name]
        for mode in ("eager", "compiled"):
            if mode in arguments.skip:
                continue
            first, second = training(
                build, arguments.train_batch, arguments.rounds, compiled=mode == "compiled"
            )
            print(
                f"| {name} for CIFAR, training step, {mode} | {first:.0f} ms | {second:.0f} ms "
                f"| {second / first:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
