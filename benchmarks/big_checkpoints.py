"""Prune a checkpoint by structure and quantize it to int4, and measure memory and time.

The checkpoint is made here: a Llama of random bfloat16 weights, a shard a layer, of which never
more than one is in memory. Given are the largest resident memory of each step, which has a
process of its own, in megabytes above what its imports take, and seconds per billion parameters.

nice python benchmarks/big_checkpoints.py --layers 22 --hidden 2048 --inner 5632
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig

from nncfx.quantization.blocks.block_engine import WeightSettings
from nncfx.quantization.checkpoints.quantize_checkpoint import empty_model, quantize_checkpoint
from nncfx.thinning.files.prune_checkpoint import prune_checkpoint

MEGABYTE = 1e6


def make(folder: Path, chosen: argparse.Namespace) -> int:
    """Write a checkpoint, and return how many parameters it has."""
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
    shapes = {name: one.shape for name, one in empty_model(folder)[0].named_parameters()}
    parts: dict[str, list[str]] = {}
    for name in shapes:
        parts.setdefault(".".join(name.split(".")[:3]), []).append(name)
    places = {}
    for number, names in enumerate(parts.values()):
        made = {one: torch.randn(shapes[one]).mul_(0.02).bfloat16() for one in names}
        save_file(made, folder / f"model-{number}.safetensors", metadata={"format": "pt"})
        places |= dict.fromkeys(names, f"model-{number}.safetensors")
    index = {"metadata": {}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return sum(one.numel() for one in shapes.values())


def step(name: str, source: Path, target: Path) -> str:
    """Do one step here, and return what it took: megabytes and seconds."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    before = next(int(one.split()[1]) for one in status.splitlines() if one.startswith("VmRSS"))
    start = time.perf_counter()
    if name == "prune":
        prune_checkpoint(source, target, 0.25, align=128)
    else:
        words = torch.randint(1000, (1, 64), generator=torch.Generator().manual_seed(0))
        settings = WeightSettings(group_size=128, method="round")
        quantize_checkpoint(source, target, [{"input_ids": words}], settings)
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(int(one.split()[1]) for one in status.splitlines() if one.startswith("VmHWM"))
    return f"{(peak - before) * 1024 / MEGABYTE:.0f} {seconds:.1f}"


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layers", type=int, default=22)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--inner", type=int, default=5632)
    parser.add_argument("--words", type=int, default=32000)
    parser.add_argument("--steps", nargs="+", default=["prune", "quantize"])
    parser.add_argument("--folder", help="where files are written; else a temporary one")
    parser.add_argument("--here", nargs=3, metavar=("STEP", "SOURCE", "TARGET"))
    chosen = parser.parse_args()
    if chosen.here:
        name, source, target = chosen.here
        print(step(name, Path(source), Path(target)))
        return
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        places = [Path(folder) / one for one in ("float", "prune", "quantize")]
        places[0].mkdir()
        count = make(places[0], chosen)
        print("| parameters | step | peak, MB | s | s per billion |\n|---:|---|---:|---:|---:|")
        for number, name in enumerate(chosen.steps):
            command = [sys.executable, __file__, "--here", name, *map(str, places[number:][:2])]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)  # noqa: S603 (itself)
            peak, seconds = map(float, done.stdout.split()[-2:])
            rate = seconds / count * 1e9
            print(f"| {count:,} | {name} | {peak:.0f} | {seconds:.1f} | {rate:.0f} |", flush=True)


if __name__ == "__main__":
    main()
