"""Perplexity of small language models, trained here, after weight-only quantization.

Three sizes of Llama, and a Mixtral of eight experts of which each byte goes through two, learn
Tiny Shakespeare byte by byte (its last tenth is for testing) and are kept in a folder of work.
Each is quantized by the ways of nncfx and, where they are installed, by torchao and HQQ; all in
groups of 128. Perplexity is that of a byte.

    python benchmarks/quantized_language_models.py --data ../shared/data --work FOLDER
"""

import argparse
import contextlib
import copy
import gzip
import math
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from nncfx.quantization import LowRankUpdates
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.preparation.separate_experts import separate_experts

LENGTH = 128
GROUP = 128
SIZES = {
    "1M": (128, 4, 1000),
    "4M": (256, 4, 700),
    "10M": (384, 6, 400),
    "mixture": (128, 4, 1000),
}
"""Width, blocks and steps of training."""


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--work", type=Path, required=True, help="keeps the trained models")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--float32", action="store_true", help="train without bfloat16")
    return parser.parse_args()


def text(data: Path) -> tuple[Tensor, Tensor]:
    """Return the bytes to train on and those to test on."""
    with gzip.open(data / "data" / "tinyshakespeare.txt.gz") as file:
        whole = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    cut = len(whole) * 9 // 10
    return whole[:cut], whole[cut:]


def model_of(size: str) -> nn.Module:
    """Return an untrained model."""
    torch.manual_seed(0)
    width, blocks, _ = SIZES[size]
    common = {
        "vocab_size": 128,
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": width // 64,
        "num_key_value_heads": width // 128,
        "intermediate_size": width * 3,
        "max_position_embeddings": LENGTH,
        "tie_word_embeddings": False,
    }
    if size == "mixture":
        return MixtralForCausalLM(
            MixtralConfig(**common, num_local_experts=8, sliding_window=None)
        )
    return LlamaForCausalLM(LlamaConfig(**common))


def windows(data: Tensor, count: int, seed: int) -> Tensor:
    """Return `count` pieces of the text, n x 128."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(data) - LENGTH, (count,), generator=generator)
    return torch.stack([data[start : start + LENGTH] for start in starts.tolist()])


def trained(size: str, data: Tensor, work: Path, *, bfloat16: bool) -> nn.Module:
    """Return a trained model, from the folder of work if it is there."""
    _, _, steps = SIZES[size]
    model, file = model_of(size), work / f"{size}.safetensors"
    if file.exists():
        model.load_state_dict(load_file(file))
        return model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    for step in range(steps):
        batch = windows(data, 16, step)
        with torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
            loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"{size}: step {step}, loss {loss:.3f}", flush=True)
    work.mkdir(parents=True, exist_ok=True)
    save_file({name: one.contiguous() for name, one in model.state_dict().items()}, file)
    return model.eval()


@torch.no_grad()
def perplexity(model: nn.Module, data: Tensor) -> float:
    """Return the perplexity of a byte over the whole text in pieces of 128."""
    pieces = data[: len(data) // LENGTH * LENGTH].view(-1, LENGTH)
    total = 0.0
    for batch in pieces.split(32):
        logits = model(input_ids=batch).logits[:, :-1]
        total += float(
            F.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten(), reduction="sum")
        )
    return math.exp(total / (len(pieces) * (LENGTH - 1)))


def variants(
    model: nn.Module, batches: list[dict[str, Tensor]], train: Tensor
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the quantized models that are compared."""
    for label, options in (
        ("int4, GPTQ", {"weights": "int4"}),
        ("uint4, GPTQ", {"weights": "uint4"}),
        ("uint4, AWQ and GPTQ", {"weights": "uint4", "scales": "awq"}),
        ("uint4, rounded", {"weights": "uint4", "method": "round"}),
        ("uint4, HQQ's grids", {"weights": "uint4", "method": "hqq"}),
        ("int4, rounded", {"weights": "int4", "method": "round"}),
        ("int4, HQQ's grids", {"weights": "int4", "method": "hqq"}),
    ):
        settings = WeightSettings(group_size=GROUP, **options)
        yield label, quantize_blocks(model, batches, settings)
    yield "uint4, GPTQ and low-rank updates", with_updates(model, batches, train)
    with contextlib.suppress(ImportError):
        from torchao.quantization import IntxWeightOnlyConfig, quantize_  # noqa: PLC0415 (optional)
        from torchao.quantization.granularity import PerGroup  # noqa: PLC0415 (optional)

        other = copy.deepcopy(model)
        config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))
        quantize_(other.model, config)
        yield "torchao", other
    with contextlib.suppress(ImportError):
        yield "HQQ", by_hqq(model)


def with_updates(
    model: nn.Module, batches: list[dict[str, Tensor]], train: Tensor, steps: int = 150
) -> nn.Module:
    """Return the model after GPTQ, trained on by low-rank updates towards what it was in float."""
    settings = WeightSettings(group_size=GROUP, weights="uint4")
    student = unpack_weights(quantize_blocks(model, batches, settings), batches[0])
    updates = LowRankUpdates(student, rank=16)
    optimizer = torch.optim.Adam(updates.parameters(), 3e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        batch = windows(train, 16, 2 * 10**6 + step)
        with torch.no_grad():
            target = model(input_ids=batch).logits.log_softmax(-1)
        found = student(input_ids=batch).logits.log_softmax(-1)
        loss = F.kl_div(found, target, reduction="batchmean", log_target=True) / LENGTH
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return updates.absorb()


def by_hqq(model: nn.Module) -> nn.Module:
    """Return a copy whose blocks have the weights that HQQ makes."""
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear  # noqa: PLC0415 (optional)

    other = copy.deepcopy(model)
    config = BaseQuantizeConfig(nbits=4, group_size=GROUP, axis=1)
    for one in other.model.modules():
        if isinstance(one, nn.Linear):
            given = {"compute_dtype": torch.float32, "device": "cpu", "del_orig": False}
            one.weight.data = HQQLinear(one, config, **given).dequantize().float()
    return other


def main() -> None:
    """Train, quantize and print perplexities."""
    options = arguments()
    train, test = text(options.data)
    for size in options.sizes:
        model = separate_experts(trained(size, train, options.work, bfloat16=not options.float32))
        exact = perplexity(model, test)
        print(f"{size} float: {exact:.4f}", flush=True)
        batches = [{"input_ids": one} for one in windows(train, 128, 10**6).split(16)]
        for label, other in variants(model, batches, train):
            found = perplexity(other, test)
            print(f"{size} {label}: {found:.4f} ({found / exact - 1:+.2%})", flush=True)


if __name__ == "__main__":
    main()
