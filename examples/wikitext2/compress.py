"""Compress a word LSTM on WikiText-2: train it, then prune and quantize by L-C, DC, fine-tuning.

    python examples/wikitext2/compress.py --data ../shared/data --output wikitext2-out

valid.txt trains (its last tenth is held out to choose by), test.txt tests.
"""

import argparse
import json
import math
from pathlib import Path

import text
import torch
from model import WordLSTM

from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.schemes import BlockPrune, Compose, Prune, Quantize, footprint_bytes

LAYERS = ("embedding", "lstm", "linear")


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/wikitext-2/")
    parser.add_argument("--output", type=Path, default=Path("wikitext2-out"))
    parser.add_argument("--hidden", type=int, default=650, help="width of the LSTM; 650")
    parser.add_argument("--vocabulary", type=int, default=10_000, help="most words; 10,000")
    parser.add_argument("--epochs", type=int, default=12, help="of dense training; 12")
    parser.add_argument("--steps", type=int, default=6, help="L-C iterations; 6")
    parser.add_argument("--iterations", type=int, default=300, help="minibatches of an L step")
    parser.add_argument("--levels", type=float, nargs="+", default=[0.5, 0.7, 0.8])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def train(model: torch.nn.Module, data: RecoveryData, epochs: int) -> None:
    """Train the dense model by Adam, keeping the best by the held-out words."""
    best, state = -math.inf, model.state_dict()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    device = next(model.parameters()).device
    for epoch in range(epochs):
        model.train()
        for inputs, targets in data.train:
            optimizer.zero_grad()
            data.criterion(model(inputs.to(device)), targets.to(device)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        metric = data.validate(model.eval())
        print(f"epoch {epoch + 1} of {epochs}: log perplexity {-metric:.4f}", flush=True)
        if metric > best:
            best = metric
            state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.load_state_dict(state)


def methods(options: argparse.Namespace, epoch: int) -> dict[str, Recovery]:
    """Return the ways of recovery that are compared, of about equally many minibatches."""
    adam = {"optimizer_factory": torch.optim.Adam, "clip_norm": 1.0}
    count = (options.steps - 1) * options.iterations
    return {
        "DC": DC(),
        "DC fine-tuned": DCFineTuned(
            epochs=max(1, round(count / epoch)), lr=5e-4, lr_end=5e-5, **adam
        ),
        "L-C": LC(
            steps=options.steps,
            lr=5e-4,
            lr_end=5e-5,
            mb_iterations_per_l=options.iterations,
            mu_init=1e-2,
            mu_multiplier=2.0,
            resume_folder=options.output / "unfinished",
            **adam,
        ),
    }


def main() -> None:
    """Train, compress in every way, and write what came out as JSON and as a table."""
    options = arguments()
    words = text.load(options.data / "data" / "wikitext-2", options.vocabulary)
    torch.manual_seed(0)
    model = WordLSTM(words.vocabulary, options.hidden).to(options.device)
    data = RecoveryData(
        train=text.batches(words.train),
        validate=lambda m: -text.log_perplexity(m, words.held_out),
        criterion=text.loss,
    )
    train(model, data, options.epochs)
    dense = text.log_perplexity(model, words.test)
    size = footprint_bytes(model)
    print(f"dense: log perplexity {dense:.4f} on the test words, {size:,} bytes\n")
    print("| scheme | level | method | log perplexity | change | footprint |")
    print("|---|---|---|---|---|---|")
    rows = []
    half = Quantize("float16", layers=LAYERS)
    for name, scheme in {
        "prune + float16": Compose([Prune(layers=LAYERS), half]),
        "block prune": BlockPrune(bs=(1, math.gcd(options.hidden, 10)), layers=("lstm",)),
    }.items():
        for level in options.levels:
            for method, recovery in methods(options, len(data.train)).items():
                found = recovery.recover(model, scheme, level, data)
                loss = text.log_perplexity(found.model, words.test)
                times = size / footprint_bytes(found.compressed)
                rows.append([name, level, method, loss, loss - dense, times])
                print(
                    f"| {name} | {level} | {method} | {loss:.4f} | {loss - dense:+.4f} "
                    f"| {times:.2f}x |",
                    flush=True,
                )
    options.output.mkdir(parents=True, exist_ok=True)
    asked = {name: str(value) for name, value in vars(options).items()}
    content = {"dense": dense, "rows": rows, "options": asked}
    (options.output / "results.json").write_text(json.dumps(content, indent=1))


if __name__ == "__main__":
    main()
