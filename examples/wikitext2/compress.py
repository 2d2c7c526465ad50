"""Compress an LSTM on WikiText-2: train it, then prune and quantize by L-C, DC, fine-tuning.

    python examples/wikitext2/compress.py --data ../shared/data --output wikitext2-out

valid.txt trains (its last tenth is held out to choose by), test.txt tests. With
`--corpus shakespeare` it reads Tiny Shakespeare by characters. What is finished is kept: the same
command goes on after a kill.
"""

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import text
import torch
from model import WordLSTM
from safetensors.torch import load_file, save_file

from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.schemes import (
    BlockPrune,
    Compose,
    Prune,
    Quantize,
    SchemeLike,
    footprint_bytes,
)

LAYERS = ("embedding", "lstm", "linear")
METHODS = ("DC", "DC fine-tuned", "L-C")


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--corpus", choices=("wikitext2", "shakespeare"), default="wikitext2")
    parser.add_argument("--output", type=Path, default=Path("wikitext2-out"))
    parser.add_argument("--hidden", type=int, default=650, help="width of the LSTM; 650")
    parser.add_argument("--vocabulary", type=int, default=10_000, help="most words; 10,000")
    parser.add_argument("--epochs", type=int, default=12, help="of dense training; 12")
    parser.add_argument("--steps", type=int, default=6, help="L-C iterations; 6")
    parser.add_argument("--iterations", type=int, default=300, help="minibatches of an L step")
    parser.add_argument("--levels", type=float, nargs="+", default=[0.5, 0.7, 0.8])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--blocks", type=int, nargs="*", help="widths; gcd of --hidden and 10")
    parser.add_argument("--amp", choices=("bfloat16",), help="mixed precision in training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def train(model: torch.nn.Module, data: RecoveryData, epochs: int, amp: str | None) -> None:
    """Train the dense model by Adam at a falling rate, keeping the best by the held-out words."""
    best, state = -math.inf, model.state_dict()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.1 ** (1 / epochs))
    device = next(model.parameters()).device
    for epoch in range(epochs):
        model.train()
        for inputs, targets in data.train:
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=amp is not None):
                loss = data.criterion(model(inputs.to(device)), targets.to(device))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        falling.step()
        metric = data.validate(model.eval())
        print(f"epoch {epoch + 1} of {epochs}: log perplexity {-metric:.4f}", flush=True)
        if metric > best:
            best = metric
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)


def trained(options: argparse.Namespace, words: text.Words, data: RecoveryData) -> torch.nn.Module:
    """Return the dense model, from the output folder if an earlier run left it there."""
    torch.manual_seed(0)
    model = WordLSTM(words.vocabulary, options.hidden).to(options.device)
    kept = options.output / "dense.safetensors"
    if kept.exists():
        model.load_state_dict(load_file(kept))
    else:
        train(model, data, options.epochs, options.amp)
        # copies: on a GPU, cuDNN keeps the weights of an LSTM in one piece
        save_file({name: one.clone() for name, one in model.state_dict().items()}, kept)
    return model.eval()


def methods(options: argparse.Namespace, epoch: int) -> dict[str, Recovery]:
    """Return the ways of recovery that are compared, of about equally many minibatches."""
    shared = {
        "lr": 1e-3,
        "lr_end": 1e-4,
        "optimizer_factory": torch.optim.Adam,
        "clip_norm": 1.0,
        "amp": options.amp,
    }
    count = (options.steps - 1) * options.iterations
    learned = LC(
        steps=options.steps,
        mb_iterations_per_l=options.iterations,
        mu_init=1e-2,
        mu_multiplier=3.0,
        resume_folder=options.output / "unfinished",
        **shared,
    )
    tuned = DCFineTuned(epochs=max(1, round(count / epoch)), **shared)
    return dict(zip(METHODS, (DC(), tuned, learned), strict=True))


def schemes(widths: Sequence[int]) -> dict[str, SchemeLike]:
    """Return what is compared: single weights everywhere, and rows of blocks in the LSTM."""
    half = Quantize("float16", layers=LAYERS)
    found: dict[str, SchemeLike] = {"prune, float16": Compose([Prune(layers=LAYERS), half])}
    for width in widths:
        blocks = BlockPrune(bs=(1, width), layers=("lstm",))
        found[f"1 x {width} blocks of the LSTM, float16"] = Compose([blocks, half])
    return found


def main() -> None:
    """Train, compress in every way, and write what came out as JSON and as a table."""
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    words = text.load(options.data / "data", options.corpus, options.vocabulary)
    data = RecoveryData(
        train=text.batches(words.train),
        validate=lambda m: -text.log_perplexity(m, words.held_out),
        criterion=text.loss,
    )
    model = trained(options, words, data)
    dense = text.log_perplexity(model, words.test)
    size = footprint_bytes(model)
    print(f"dense: log perplexity {dense:.4f} on the test words, {size:,} bytes\n")
    print("| scheme | level | method | log perplexity | change | footprint |")
    print("|---|---|---|---|---|---|", flush=True)
    path = options.output / "results.json"
    rows = json.loads(path.read_text()) if path.exists() else []
    widths = [math.gcd(options.hidden, 10)] if options.blocks is None else options.blocks
    compared = schemes(widths)
    for name, level, method in itertools.product(compared, options.levels, options.methods):
        if any(row[:3] == [name, level, method] for row in rows):
            continue
        recovery = methods(options, len(data.train))[method]
        found = recovery.recover(model, compared[name], level, data)
        loss = text.log_perplexity(found.model, words.test)
        times = size / footprint_bytes(found.compressed)
        print(
            f"| {name} | {level} | {method} | {loss:.4f} | {loss - dense:+.4f} | {times:.2f}x |",
            flush=True,
        )
        rows.append([name, level, method, loss, loss - dense, times])
        path.with_suffix(".part").write_text(json.dumps(rows, indent=1))
        path.with_suffix(".part").replace(path)


if __name__ == "__main__":
    main()
