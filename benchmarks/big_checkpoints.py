"""Prune a checkpoint by structure and quantize it to int4, and measure memory and time.

The checkpoint is made here: a Llama of random bfloat16 weights, a shard a layer, of which never
more than one is in memory. Given are the largest resident memory of each step, which has a
process of its own, in megabytes above what its imports take, and seconds per billion parameters
of the checkpoint that the step reads: of the clock, and of the processor.

A run in a --folder that was killed is gone on with: shards that are whole are not made again.
Steps that were gone on with are not written into --data. --draw draws what is in there.

OMP_NUM_THREADS=1 python benchmarks/big_checkpoints.py --layers 22 --hidden 2048 --inner 5632
python benchmarks/big_checkpoints.py --data docs/data/big_checkpoints.jsonl --draw PICTURE.svg
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from nncfx.quantization.blocks.block_engine import WeightSettings
from nncfx.quantization.checkpoints.quantize_checkpoint import empty_model, quantize_checkpoint
from nncfx.thinning.files.prune_checkpoint import prune_checkpoint

MEGABYTE = 1e6
BILLION = 1e9
INDEX = "model.safetensors.index.json"


def make(folder: Path, chosen: argparse.Namespace) -> None:
    """Write a checkpoint, or what is left to write of it."""
    config = LlamaConfig(
        hidden_size=chosen.hidden,
        intermediate_size=chosen.inner,
        num_hidden_layers=chosen.layers,
        num_attention_heads=chosen.hidden // 64,
        num_key_value_heads=max(1, chosen.hidden // 256),
        vocab_size=chosen.words,
        dtype=torch.bfloat16,
        architectures=["LlamaForCausalLM"],
    )
    config.save_pretrained(folder)
    shapes = {name: one.shape for name, one in empty_model(folder).named_parameters()}
    parts: dict[str, list[str]] = {}
    for name in shapes:
        parts.setdefault(".".join(name.split(".")[:3]), []).append(name)
    places = {}
    for number, names in enumerate(parts.values()):
        path = folder / f"model-{number}.safetensors"
        places |= dict.fromkeys(names, path.name)
        if path.exists():
            continue
        made = {one: torch.randn(shapes[one]).mul_(0.02).bfloat16() for one in names}
        save_file(made, path.with_suffix(".draft"), metadata={"format": "pt"})
        path.with_suffix(".draft").rename(path)
    index = {"metadata": {}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def memory(kind: str) -> float:
    """Return the resident memory of this process, now (VmRSS) or at most (VmHWM), in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    found = next(int(one.split()[1]) for one in status.splitlines() if one.startswith(kind))
    return found * 1024 / MEGABYTE


def step(name: str, source: Path, target: Path) -> dict[str, float]:
    """Do one step here, and return what it took."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
    count = sum(one.numel() for one in empty_model(source).parameters())
    before, start, work = memory("VmRSS"), time.perf_counter(), time.process_time()
    if name == "prune":
        prune_checkpoint(source, target, 0.25, align=128)
    else:
        words = torch.randint(1000, (1, 64), generator=torch.Generator().manual_seed(0))
        settings = WeightSettings(group_size=128, method="round")
        quantize_checkpoint(source, target, [{"input_ids": words}], settings)
    return {
        "parameters": count,
        "peak_mb": round(memory("VmHWM") - before),
        "imports_mb": round(before),
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time() - work, 1),
        "threads": torch.get_num_threads(),
    }


def draw(data: Path, path: Path) -> None:
    """Draw memory and processor time over the parameters."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (measuring does without)

    rows = [json.loads(one) for one in data.read_text(encoding="utf-8").splitlines()]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    peaks, times = figure.subplots(1, 2)
    for name, mark in (("prune", "o"), ("quantize", "s")):
        found = sorted(
            (one for one in rows if one["step"] == name), key=lambda one: one["parameters"]
        )
        billions = [one["parameters"] / BILLION for one in found]
        peaks.plot(billions, [one["peak_mb"] / 1000 for one in found], mark, label=name)
        rates = [one["cpu_seconds"] / size for one, size in zip(found, billions, strict=True)]
        times.plot(billions, rates, mark, label=name)
    whole = [one["parameters"] / BILLION for one in rows if one["step"] == "prune"]
    peaks.plot(
        sorted(whole), [2 * one for one in sorted(whole)], "k:", label="the checkpoint (bfloat16)"
    )
    peaks.set(ylabel="peak of memory, GB", yscale="log")
    times.set(ylabel="CPU seconds per billion parameters", ylim=(0, None))
    for one in (peaks, times):
        one.set(xlabel="parameters read, billions", xscale="log")
        one.grid(alpha=0.3)
        one.legend()
    figure.savefig(path, format="svg")


def measure(chosen: argparse.Namespace) -> None:
    """Make the checkpoint, do the steps one after another, print what they took."""
    with ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        places = [folder / one for one in ("float", *chosen.steps)]
        places[0].mkdir(parents=True, exist_ok=True)
        make(places[0], chosen)
        print("| parameters | step | peak, MB | s | CPU s | CPU s per billion |", flush=True)
        print("|---:|---|---:|---:|---:|---:|", flush=True)
        for name, source, target in zip(chosen.steps, places, places[1:], strict=False):
            is_new = not target.exists()
            command = [sys.executable, __file__, "--here", name, str(source), str(target)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603 (itself)
            found = {"step": name} | json.loads(done.stdout.splitlines()[-1])
            rate = found["cpu_seconds"] / found["parameters"] * BILLION
            print(
                f"| {found['parameters']:,} | {name} | {found['peak_mb']} | {found['seconds']} | "
                f"{found['cpu_seconds']} | {rate:.0f} |" + ("" if is_new else " gone on with"),
                flush=True,
            )
            if chosen.data and is_new:
                with chosen.data.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=5632)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--steps", nargs="+", default=["prune", "quantize"])
    parser.add_argument("--folder", type=Path, help="where files stay; else a temporary one")
    parser.add_argument("--data", type=Path, help="JSON lines that the results are added to")
    parser.add_argument("--draw", type=Path, help="draw --data into this file, measure nothing")
    parser.add_argument("--here", nargs=3, metavar=("STEP", "SOURCE", "TARGET"))
    chosen = parser.parse_args()
    if chosen.here:
        name, source, target = chosen.here
        print(json.dumps(step(name, Path(source), Path(target))))
        return
    if chosen.draw:
        draw(chosen.data, chosen.draw)
        return
    measure(chosen)


if __name__ == "__main__":
    main()
