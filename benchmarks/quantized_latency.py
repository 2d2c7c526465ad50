"""Latency of quantized models against float, in the same runtime and the same turns.

Random weights, batch norms settled on random images, 224 x 224, batch 1. Every model is timed as
float, as nncfx quantizes it, pruned to 50 % of its channels (aligned to 16) and quantized, as
ONNX Runtime's own `quantize_static` writes it, and as any file given with --peer.

    python benchmarks/quantized_latency.py [--models resnet18 ...] [--runtimes onnxruntime ...]
        [--peer 'nncf={model}_nncf.onnx'] [--seconds 3] [--clock process]
        [--target onnxruntime-avx2]

With the target `onnxruntime-avx2` weights have 7 bits, those of `quantize_static` as well.
With `--clock process` CPU time is measured instead of wall time: for a busy machine.
"""

import argparse
import copy
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from onnxruntime import quantization
from pytorchcv.models.efficientnet import efficientnet_b0
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.mobilenetv3 import mobilenetv3_large_w1
from pytorchcv.models.resnet import resnet18, resnet50
from rich.progress import Progress
from torch import nn

import nncfx
from nncfx.runtimes import (
    BuildOptions,
    Timing,
    TimingPlan,
    compare,
    integer_kernels,
    runtime_named,
)

MODELS = {
    "resnet18": resnet18,
    "resnet50": resnet50,
    "mobilenetv2": mobilenetv2_w1,
    "mobilenetv3": mobilenetv3_large_w1,
    "efficientnet_b0": efficientnet_b0,
}
CLOCKS = {"wall": time.perf_counter, "process": time.process_time}
SHAPE = (1, 3, 224, 224)


def settled(name: str) -> nn.Module:
    """Return a model with random weights whose batch norms have seen random images."""
    torch.manual_seed(0)
    model = MODELS[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(4, *SHAPE[1:]))
    return model.eval()


def pruned(model: nn.Module) -> nn.Module:
    """Return a copy without half of its channels, by magnitude."""
    config = nncfx.NNCFConfig.from_dict(
        {
            "input_info": {"sample_size": list(SHAPE)},
            "compression": {
                "algorithm": "filter_pruning",
                "pruning_init": 0.5,
                "params": {
                    "all_weights": True,
                    "align": 16,
                    "prune_first_conv": True,
                    "prune_downsample_convs": True,
                },
            },
        }
    )
    _, wrapped = nncfx.create_compressed_model(
        copy.deepcopy(model), config, example_inputs=torch.randn(SHAPE)
    )
    return nncfx.thin(nncfx.strip(wrapped), torch.randn(SHAPE), align=16).model


def quantized(model: nn.Module, path: Path, target: str) -> Path:
    """Write `model` quantized by nncfx, and say what runs in float."""
    batches = [torch.randn(SHAPE) for _ in range(8)]
    ready = nncfx.quantize(model, batches, target=target)
    result = nncfx.export_onnx(ready, path, batches[0], target, dynamic_batch=False)
    if left := integer_kernels(result, batches[0]).float:
        print(f"{path.name}: in float {', '.join(left)}")
    return result.path


def by_onnx_runtime(path: Path, folder: Path, target: str) -> Path:
    """Write the float file at `path` as ONNX Runtime's static quantizer does."""

    class Images(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.images = iter([torch.randn(SHAPE).numpy() for _ in range(8)])

        def get_next(self) -> Mapping[str, object] | None:
            image = next(self.images, None)
            return None if image is None else {"x": image}

    prepared, written = folder / f"prepared_{path.name}", folder / f"ort_{path.name}"
    quantization.shape_inference.quant_pre_process(str(path), str(prepared))
    quantization.quantize_static(
        str(prepared),
        str(written),
        Images(),
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        reduce_range=target == "onnxruntime-avx2",
    )
    return written


def files(name: str, folder: Path, peers: list[str], target: str) -> dict[str, Path]:
    """Return the files to compare, by what they are called in the table."""
    model, x = settled(name), torch.randn(SHAPE)
    found = {}
    found["float"] = nncfx.export_onnx(model, folder / f"{name}.onnx", x, dynamic_batch=False).path
    found["nncfx int8"] = quantized(model, folder / f"{name}_int8.onnx", target)
    thin = pruned(model)
    found["nncfx pruned"] = nncfx.export_onnx(
        thin, folder / f"{name}_thin.onnx", x, dynamic_batch=False
    ).path
    found["nncfx pruned, int8"] = quantized(thin, folder / f"{name}_thin_int8.onnx", target)
    found["quantize_static"] = by_onnx_runtime(found["float"], folder, target)
    for peer in peers:
        label, _, pattern = peer.partition("=")
        found[label] = Path(pattern.format(model=name))
    return found


def timed(
    paths: Mapping[str, Path], runtime: str, plan: TimingPlan, clock: str
) -> dict[str, Timing]:
    """Return the time of each file in `runtime`, in turns."""
    x = torch.randn(SHAPE)
    sessions = {
        name: runtime_named(runtime).build(path, BuildOptions(threads=1))
        for name, path in paths.items()
    }
    try:
        calls = {name: session.bind(x) for name, session in sessions.items()}
        return compare(calls, plan=plan, clock=CLOCKS[clock])
    finally:
        for session in sessions.values():
            session.close()


def main() -> None:
    """Print a table of medians and of speed-ups over float."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS)[:3], choices=list(MODELS))
    parser.add_argument("--runtimes", nargs="+", default=["onnxruntime", "openvino"])
    parser.add_argument("--peer", action="append", default=[], help="label=path with {model}")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--target", default="onnxruntime", help="that the files are made for")
    options = parser.parse_args()
    print("| model | runtime | file | ms | x float |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True) as progress:
        task = progress.add_task("models", total=len(options.models))
        for name in options.models:
            paths = files(name, Path(folder), options.peer, options.target)
            for runtime in options.runtimes:
                plan = TimingPlan(seconds=options.seconds)
                found = timed(paths, runtime, plan, options.clock)
                base = found["float"].median_ms
                rows = [
                    f"| {name} | {runtime} | {label} | {one.median_ms:.2f} "
                    f"| {base / one.median_ms:.2f} |"
                    for label, one in found.items()
                ]
                print("\n".join(rows), flush=True)
            progress.advance(task)


if __name__ == "__main__":
    main()
