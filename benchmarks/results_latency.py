"""How fast the networks of `results/` are in ONNX Runtime, beside the dense one, in turns.

    python benchmarks/results_latency.py resnet56-filters-53-seed0-16bit [--accuracy]

Each network is exported as it stands in its file (thinned, float32), and once more in 8 bits,
calibrated on training images. Beside the dense network in float32 and in 8 bits all are timed in
one process, in turns, in one thread. With `--accuracy` their files are run on all test images
instead.
"""

import argparse
import contextlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch
from campaign_results import AT_ONCE, DATA, RESULTS, hits_of_test, loaded, percent
from pretrained import PRETRAINED
from torch import Tensor, nn

import nncfx
from nncfx import runtimes

_CALIBRATION: Final = 256
"""Training images that quantizers see."""


def versions(name: str, data: Path) -> dict[str, nn.Module]:
    """Return the dense network and the one of the result file `name`, in float32 and 8 bits."""
    network = json.loads((RESULTS / f"{name}.json").read_text())["network"]
    known = PRETRAINED[network]
    images, _ = known.train(data, _CALIBRATION)
    floats = {
        "dense": known.load(data),
        "result": loaded(RESULTS / f"{name}.nncfx", network, data),
    }
    batches = list(images.split(64))
    integers = {f"{key}, int8": nncfx.quantize(one, batches) for key, one in floats.items()}
    return {**floats, **integers}


@contextlib.contextmanager
def built(name: str, data: Path, inputs: Tensor) -> Iterator[dict[str, runtimes.Session]]:
    """Hold a session for each version of the result `name`."""
    runtime = runtimes.runtime_named("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        sessions: dict[str, runtimes.Session] = {}
        for key, model in versions(name, data).items():
            path = Path(folder) / f"{len(sessions)}.onnx"
            nncfx.export_onnx(model.eval(), path, inputs, dynamic_batch=False)
            sessions[key] = runtime.build(path, runtimes.BuildOptions(threads=1))
        yield sessions


def accuracies(name: str, data: Path) -> None:
    """Print the accuracy of each version of the result `name`."""
    network = json.loads((RESULTS / f"{name}.json").read_text())["network"]
    inputs = torch.randn(AT_ONCE, 3, 32, 32)
    with built(name, data, inputs) as sessions:
        for key, session in sessions.items():
            right = hits_of_test(runtimes.SessionModule(session), network, data)
            print(f"| {name} | {key} | {percent(right):.2f} |", flush=True)


def times(name: str, data: Path, batch: int, seconds: float) -> None:
    """Print a row for each version of the result `name`."""
    inputs = torch.randn(batch, 3, 32, 32)
    with built(name, data, inputs) as sessions:
        found = runtimes.time_sessions(
            sessions, inputs, plan=runtimes.TimingPlan(seconds=seconds, clock="auto")
        )
    for key, timing in found.items():
        said = runtimes.verdict(found["dense"], timing)
        low, high = said.speed_up_interval
        print(
            f"| {name} | {key} | {batch} | {timing.median_ms:.2f} | {said.speed_up:.2f}x "
            f"({low:.2f} to {high:.2f}) |",
            flush=True,
        )


def main() -> None:
    """Time the results that the command names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="+", help="results, without their ending")
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data/ and weights/")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each version")
    parser.add_argument("--accuracy", action="store_true", help="instead of times")
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.accuracy:
        print("| file | version | accuracy, % |\n|---|---|---:|")
        for name in options.names:
            accuracies(name, options.data)
        return
    print("| file | version | batch | ms | speed |\n|---|---|---:|---:|---:|")
    for name in options.names:
        for batch in options.batches:
            times(name, options.data, batch, options.seconds)


if __name__ == "__main__":
    main()
