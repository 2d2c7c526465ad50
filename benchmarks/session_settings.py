"""Int8 models in nncfx's session of ONNX Runtime against a plain one (bar: 1.05 with VNNI).

Random weights, batch norms settled on random images, 224 x 224, batch 1. Both sessions run in one
process and in turns; one is `onnxruntime.InferenceSession` with no setting but the threads. With
--exact, a third one has products of bytes that are exact on every processor.

    python benchmarks/session_settings.py [--models resnet50 ...] [--exact] [--clock cpu]
"""

import argparse
import contextlib
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet import resnet50
from torch import nn

import nncfx
from nncfx.compressor import machine_facts
from nncfx.runtimes import (
    EXACT_BYTE_SUMS,
    BuildOptions,
    TimingPlan,
    compare,
    runtime_named,
    verdict,
)

MODELS = {"mobilenetv2": mobilenetv2_w1, "resnet50": resnet50}
SHAPE = (1, 3, 224, 224)


def main() -> None:
    """Print a table of medians, spreads and ratios, under the processor's name."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--exact", action="store_true", help="also with products always exact")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each session")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", default="auto", help="cpu: for a busy machine, one thread")
    chosen = parser.parse_args()
    facts = machine_facts()
    told = [facts.get(name, "not told") for name in ("processor", "byte products", "load average")]
    print("; ".join([*told, f"ONNX Runtime {onnxruntime.__version__}"]))
    print("| model | session | median ms | 10 % to 90 % | over plain (95 %) |")
    print("|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen.models:
            file = integer_file(name, Path(folder))
            for row in rows(name, file, chosen):
                print(row, flush=True)


def integer_file(name: str, folder: Path) -> Path:
    """Write the model with 8 bits of weights and activations."""
    torch.manual_seed(0)
    model = MODELS[name]()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(4, *SHAPE[1:]))
    batches = [torch.randn(SHAPE) for _ in range(4)]
    small = nncfx.quantize(copy.deepcopy(model.eval()), batches)
    return nncfx.export_onnx(small, folder / f"{name}.onnx", batches[0], dynamic_batch=False).path


def rows(name: str, file: Path, chosen: argparse.Namespace) -> list[str]:
    """Return the rows of one file: the plain session, ours, and the exact one where asked for."""
    x = torch.randn(SHAPE)
    variants = {"nncfx": BuildOptions(threads=chosen.threads)}
    if chosen.exact:
        variants["always exact"] = BuildOptions(
            threads=chosen.threads, settings=(EXACT_BYTE_SUMS,)
        )
    with contextlib.ExitStack() as stack:
        calls = {"plain": plain_call(file, x.numpy(), chosen.threads)}
        for label, options in variants.items():
            session = stack.enter_context(runtime_named("onnxruntime").build(file, options))
            calls[label] = session.bind(x)
        plan = TimingPlan(seconds=chosen.seconds, clock=chosen.clock)
        timings = compare(calls, plan=plan)
    written = []
    for label, timing in timings.items():
        against = verdict(timing, timings["plain"])
        low, high = against.speed_up_interval
        ratio = f"{against.speed_up:.3f} ({low:.3f} to {high:.3f})" if label != "plain" else ""
        spread = f"{timing.percentile_ms(0.1):.2f} to {timing.percentile_ms(0.9):.2f}"
        written.append(
            f"| {name} | {label} | {timing.median_ms:.2f} ({timing.clock}) | {spread} | {ratio} |"
        )
    return written


def plain_call(file: Path, x: np.ndarray, threads: int) -> Callable[[], object]:
    """Return a call of the file in a session as ONNX Runtime makes it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: x}
    return lambda: session.run(None, feeds)


if __name__ == "__main__":
    main()
