"""Perplexity of small Llama-like models, trained here, after weight-only quantization.

Three sizes learn Tiny Shakespeare byte by byte (its last tenth is for testing) and are kept in a
folder of work. Each is quantized by the ways of nncfx and, where they are installed, by torchao
and HQQ; all in groups of 128. Perplexity is that of a byte.

    python benchmarks/quantized_language_models.py --data ../shared/data --work FOLDER
"""

import argparse
import gzip
import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

LENGTH = 128
GROUP = 128
SIZES = {"1M": (128, 4, 1000), "4M": (256, 4, 700), "10M": (384, 6, 400)}
"""Width, blocks and steps of training."""


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--work", type=Path, required=True, help="keeps the trained models")
    parser.add_argument("--sizes", nargs="*", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--bits", type=int, default=4)
    return parser.parse_args()


def text(data: Path) -> tuple[Tensor, Tensor]:
    """Return the bytes to train on and those to test on."""
    with gzip.open(data / "data" / "tinyshakespeare.txt.gz") as file:
        whole = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    cut = len(whole) * 9 // 10
    return whole[:cut], whole[cut:]


def model_of(width: int, blocks: int) -> LlamaForCausalLM:
    """Return an untrained model."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=width,
        num_hidden_layers=blocks,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        intermediate_size=width * 3,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config)


def windows(data: Tensor, count: int, seed: int) -> Tensor:
    """Return `count` pieces of the text, n x 128."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(data) - LENGTH, (count,), generator=generator)
    return torch.stack([data[start : start + LENGTH] for start in starts.tolist()])


def trained(size: str, data: Tensor, work: Path) -> LlamaForCausalLM:
    """Return a trained model, from the folder of work if it is there."""
    width, blocks, steps = SIZES[size]
    model, file = model_of(width, blocks), work / f"{size}.safetensors"
    if file.exists():
        model.load_state_dict(load_file(file))
        return model.eval()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps)
    for step in range(steps):
        batch = windows(data, 16, step)
        with torch.autocast("cpu", torch.bfloat16):
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


if __name__ == "__main__":
    given = arguments()
    parts = text(given.data)
    for name in given.sizes:
        print(name, perplexity(trained(name, parts[0], given.work), parts[1]), flush=True)
