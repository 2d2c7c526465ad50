"""Measure the memory that compressing a language model takes beside the model itself.

Each row is a process of its own: it builds a Llama of transformers with random weights in
float32, notes what is resident, resets the peak that Linux keeps (/proc/self/clear_refs), runs one
task, and reads the peak. Before that the task has run on a Llama of 1 million parameters, so that
imports and first uses do not count. Given are the peak above the loaded model in sizes of the
model, and the seconds of the task.

python benchmarks/big_models.py --sizes 25M 100M
nice python benchmarks/big_models.py --sizes 1100M --tasks "thin in place"
"""

import argparse
import ctypes
import gc
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

import nncfx
from nncfx.channels import analyze_channels
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.schemes import zero_smallest

# ruff: noqa: ANN401 (models of transformers)

SIZES: Final[Mapping[str, tuple[int, int, int, int, int]]] = {
    "1M": (64, 192, 2, 4, 1000),
    "25M": (384, 1024, 8, 6, 16000),
    "100M": (640, 1728, 12, 10, 32000),
    "350M": (1024, 2816, 22, 16, 32000),
    "1100M": (2048, 5632, 22, 32, 32000),
}
"""Hidden size, intermediate size, layers, heads (a fourth of them for keys), vocabulary."""

HEADER: Final = "| model | task | model, MB | peak above, models | seconds |"
MEGABYTE: Final = 1e6
LENGTH: Final = 8


def llama(size: str) -> nn.Module:
    """Return a Llama with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 (an extra)

    hidden, inner, layers, heads, words = SIZES[size]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4) if heads % 4 == 0 else heads // 2,
        vocab_size=words,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval()


def inputs(model: Any) -> dict[str, torch.Tensor]:
    """Return one sentence of random words."""
    return {"input_ids": torch.randint(0, model.config.vocab_size, (1, LENGTH))}


def pruned(model: Any, algorithm: str, level: float) -> tuple[Any, Any]:
    """Return the controller and the model, with the masks of a level."""
    target = "sparsity_target" if algorithm == "magnitude_sparsity" else "pruning_target"
    start = target.replace("target", "init")
    item = {"algorithm": algorithm, start: level, "params": {target: level}}
    return nncfx.create_compressed_model(model, {"compression": item}, inputs(model))


def channels(model: nn.Module) -> None:
    """Find the channels."""
    analyze_channels(model, inputs(model))


def strip(model: nn.Module, *, inplace: bool) -> None:
    """Zero half of the weights, and bake that in."""
    _, wrapped = pruned(model, "magnitude_sparsity", 0.5)
    nncfx.strip(wrapped, inplace=inplace)


def zero(model: nn.Module) -> None:
    """Zero half of the weights of linear layers and embeddings, without masks."""
    weights = {name: one for name, one in model.named_parameters() if one.ndim > 1}
    zero_smallest(weights, 0.5, normed=True)


def thin(model: nn.Module, *, inplace: bool) -> None:
    """Mask the half of all heads and neurons, and take them out."""
    _, wrapped = pruned(model, "structure_pruning", 0.5)
    nncfx.thin(wrapped, **({"inplace": True} if inplace else {}))


def whole(model: nn.Module) -> None:
    """Take out a fourth of all heads and neurons, and round what is left to int4 by GPTQ."""
    _, wrapped = pruned(model, "structure_pruning", 0.25)
    int4(nncfx.thin(wrapped, inplace=True).model, inplace=False)


def int4(model: Any, *, inplace: bool) -> None:
    """Round the blocks to int4 by GPTQ."""
    batches = [inputs(model) for _ in range(8)]
    quantize_blocks(model, batches, WeightSettings(group_size=128), inplace=inplace)


def export(model: nn.Module) -> None:
    """Write the model as ONNX in float32."""
    with tempfile.TemporaryDirectory() as folder:
        nncfx.export_onnx(model, Path(folder) / "model.onnx", inputs(model))


TASKS: Final[Mapping[str, Callable[[nn.Module], None]]] = {
    "channels": channels,
    "strip": lambda model: strip(model, inplace=False),
    "strip in place": lambda model: strip(model, inplace=True),
    "zero_smallest": zero,
    "thin": lambda model: thin(model, inplace=False),
    "thin in place": lambda model: thin(model, inplace=True),
    "prune, thin, int4": whole,
    "int4 in place": lambda model: int4(model, inplace=True),
    "export": export,
}


def kept(what: str) -> int:
    """Return an amount of memory of this process in bytes: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


def row(size: str, task: str) -> str:
    """Return the row of one task."""
    TASKS[task](llama("1M"))
    torch.manual_seed(0)
    model = llama(size)
    bytes_ = sum(one.numel() * one.element_size() for one in model.parameters())
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = kept("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    start = time.perf_counter()
    TASKS[task](model)
    seconds = time.perf_counter() - start
    above = (kept("VmHWM") - before) / bytes_
    return f"| {size} | {task} | {bytes_ / MEGABYTE:,.0f} | {above:.2f} | {seconds:.1f} |"


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["25M", "100M"])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--here", action="store_true", help="in this process, one row")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    if chosen.here:
        print(row(chosen.sizes[0], chosen.tasks[0]), flush=True)
        return
    print(f"{HEADER}\n|---|---|---:|---:|---:|", flush=True)
    for size in chosen.sizes:
        for task in chosen.tasks:
            command = [sys.executable, __file__, "--here", "--sizes", size, "--tasks", task]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)  # noqa: S603 (itself)
            failed = f"| {size} | {task} | | failed ({done.returncode}) | |"
            print(done.stdout.strip() if not done.returncode else failed, flush=True)


if __name__ == "__main__":
    main()
