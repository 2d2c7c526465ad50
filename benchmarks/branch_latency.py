"""What pruning whole branches brings in ONNX Runtime, beside filters, before any training.

    python benchmarks/branch_latency.py [--level 0.53] [--batch 1]

The pretrained ResNet-56 loses a fraction of its multiply-accumulates by branches, and by filters
to multiples of 8. Both are thinned, exported in float32 and in 8 bits, and timed beside the dense
network in one process, in turns, in one thread.
"""

import argparse
import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from campaign_results import DATA
from pretrained import PRETRAINED
from torch import nn

import nncfx
from nncfx import runtimes

WAYS: Final[dict[str, dict[str, Any]]] = {
    "branch_pruning": {},
    "structure_pruning": {"align": 8, "filter_importance": "LAMP"},
}
_NETWORK: Final = "resnet56-A"
_CALIBRATION: Final = 256


def pruned(data: Path, algorithm: str, level: float) -> nn.Module:
    """Return the network without a fraction `level` of its multiply-accumulates."""
    image = torch.zeros(1, 3, 32, 32)
    params = {"schedule": "baseline", "pruning_flops_target": level, **WAYS[algorithm]}
    config = {"compression": {"algorithm": algorithm, "pruning_init": level, "params": params}}
    controller, _ = nncfx.create_compressed_model(PRETRAINED[_NETWORK].load(data), config, image)
    return nncfx.thin(controller.strip().eval(), image).model.eval()


def main() -> None:
    """Print a row for each network, in float32 and in 8 bits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder with data/ and weights/")
    parser.add_argument("--level", type=float, default=0.53)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each version")
    options = parser.parse_args()
    torch.manual_seed(0)
    warnings.simplefilter("ignore")  # of dead branches all activations are zero
    images = torch.randn(options.batch, 3, 32, 32)
    networks = {"dense": PRETRAINED[_NETWORK].load(options.data)}
    networks |= {key: pruned(options.data, key, options.level) for key in WAYS}
    batches = PRETRAINED[_NETWORK].train(options.data, _CALIBRATION)[0].split(64)
    for key, model in list(networks.items()):
        networks[f"{key}, int8"] = nncfx.quantize(copy.deepcopy(model), list(batches))
    runtime = runtimes.runtime_named("onnxruntime")
    with tempfile.TemporaryDirectory() as folder:
        sessions = {}
        for number, (key, model) in enumerate(networks.items()):
            file = Path(folder) / f"{number}.onnx"
            written = nncfx.export_onnx(model, file, images, dynamic_batch=False)
            sessions[key] = runtime.build(written, runtimes.BuildOptions(threads=1))
        plan = runtimes.TimingPlan(seconds=options.seconds, clock="auto")
        found = runtimes.time_sessions(sessions, images, plan=plan)
    print("| network | ms | speed |\n|---|---:|---:|")
    for key, timing in found.items():
        said = runtimes.verdict(found["dense"], timing)
        low, high = said.speed_up_interval
        print(
            f"| {key} | {timing.median_ms:.2f} | {said.speed_up:.2f}x ({low:.2f} to {high:.2f}) |"
        )


if __name__ == "__main__":
    main()
