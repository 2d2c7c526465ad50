"""Measure the memory that wrapping adds to models of torchvision.

Counted is what Python allocates in `nncfx.wrap` and has not freed afterwards, by tracemalloc:
graph, wiring, classes. The example inputs, which are kept too, are the caller's. Under a
TorchFunctionMode torch interns some names anew at first, and keeps them when the model is gone;
hence the model is wrapped and unwrapped some times before.

python benchmarks/wrap_memory.py resnet18 mobilenet_v2 --shim ../shared/tools
"""

import argparse
import gc
import importlib
import sys
import tracemalloc
import warnings
from itertools import chain
from typing import Any, Final

import torch
from torch import nn

import nncfx

MODELS: Final = ("resnet18", "resnet50", "mobilenet_v2", "vit_b_16")
HEADER: Final = "| model | operations | model, bytes | added, bytes | share |"
WARM_UP: Final = 6


def held() -> int:
    """Return the bytes that Python's objects take, in so far as tracemalloc saw them come."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def row(model: nn.Module, inputs: torch.Tensor) -> str:
    """Return the row of one model."""
    for _ in range(WARM_UP):
        nncfx.unwrap(nncfx.wrap(model, inputs))
    tensors = chain(model.parameters(), model.buffers())
    size = sum(one.numel() * one.element_size() for one in tensors)
    tracemalloc.start()
    before = held()
    wrapped: Any = nncfx.wrap(model, inputs)
    added = held() - before
    count = len(wrapped.nncf.graph.operations)
    tracemalloc.stop()
    return f"{count} | {size:,} | {added:,} | {added / size:.2%}"


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--shim", help="folder of torchvision_on_cpu.py")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.shim:
        sys.path.insert(0, chosen.shim)
        importlib.import_module("torchvision_on_cpu")
    zoo = importlib.import_module("torchvision.models")
    print(f"{HEADER}\n|---|---:|---:|---:|---:|")
    for name in chosen.models:
        model = zoo.get_model(name).eval()
        print(f"| {name} | {row(model, torch.rand(1, 3, 224, 224))} |", flush=True)


if __name__ == "__main__":
    main()
