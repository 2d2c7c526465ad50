"""Whether the times of a profile's layers add up to the latency (bar: within 30 %, 5 % nobody's).

python benchmarks/layer_times.py [--models resnet18 ...] [--seconds 2]
"""

import argparse
import tempfile
from pathlib import Path

import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet import resnet18

from nncfx.export import export_onnx
from nncfx.runtimes import UNATTRIBUTED, TimingPlan, profile_layers, time_path

MODELS = {"resnet18": resnet18, "mobilenetv2": mobilenetv2_w1}


def main() -> None:
    """Profile and time each model in one thread, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args()
    inputs = torch.randn(1, 3, 224, 224)
    plan = TimingPlan(seconds=chosen.seconds, clock="auto")
    print("| model | layers ms | latency ms | of no layer |")
    print("|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.models:
            path = Path(folder) / f"{name}.onnx"
            file = export_onnx(MODELS[name]().eval(), path, inputs, dynamic_batch=False)
            profile = profile_layers(file, inputs, modules=file.modules, threads=1)
            latency = time_path(file, inputs, threads=1, plan=plan).median_ms
            nobody = profile.ms_of(UNATTRIBUTED) / profile.total_ms
            print(f"| {name} | {profile.total_ms:.2f} | {latency:.2f} | {nobody:.1%} |")


if __name__ == "__main__":
    main()
