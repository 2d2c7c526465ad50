"""How fast the networks of `results/` are in ONNX Runtime, beside the dense one, in turns.

    python benchmarks/results_latency.py resnet56-filters-53-seed0-16bit

Each network is exported as it stands in its file (thinned, float32), and once more in 8 bits,
calibrated on training images. Beside the dense network in float32 and in 8 bits all are timed in
one process, in turns, in one thread.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Final

import torch
from campaign_results import DATA, RESULTS, loaded
from pretrained import PRETRAINED
from torch import nn

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


def times(name: str, data: Path, batch: int, seconds: float) -> None:
    """Print a row for each version of the result `name`."""
    inputs = torch.randn(batch, 3, 32, 32)
    runtime = runtimes.runtime_named("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for key, model in versions(name, data).items():
            path = Path(folder) / f"{len(sessions)}.onnx"
            nncfx.export_onnx(model.eval(), path, inputs, dynamic_batch=False)
            sessions[key] = runtime.build(path, runtimes.BuildOptions(threads=1))
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
    options = parser.parse_args()
    torch.manual_seed(0)
    print("| file | version | batch | ms | speed |\n|---|---|---:|---:|---:|")
    for name in options.names:
        for batch in options.batches:
            times(name, options.data, batch, options.seconds)


if __name__ == "__main__":
    main()
