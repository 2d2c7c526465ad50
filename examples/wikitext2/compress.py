"""Compress an LSTM on WikiText-2: train it, then prune and quantize by L-C, DC, fine-tuning.

    python examples/wikitext2/compress.py --data ../shared/data --output wikitext2-out

valid.txt trains (its last tenth is held out to choose by), test.txt tests. With
`--corpus shakespeare` it reads Tiny Shakespeare by characters. What is finished is kept: the same
command goes on after a kill. With `--search EPS` a `Compressor` looks for the level of each method
as well, the dashed lines of Condensa's Figure 4, which is drawn where matplotlib is installed.
"""

import argparse
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import text
import torch
from model import WordLSTM
from safetensors.torch import load_file, save_file

import nncfx
from nncfx.lc import DC, LC, DCFineTuned, Recovery, RecoveryData
from nncfx.objectives import Minimize, footprint
from nncfx.schemes import BlockPrune, Compose, Prune, Quantize, SchemeLike, footprint_bytes

LAYERS = ("embedding", "lstm", "linear")
METHODS = ("DC", "DC fine-tuned", "L-C")
Row = dict[str, Any]
What = tuple[str, SchemeLike, str]
"""A scheme's name, the scheme, and the way of recovery."""


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
    parser.add_argument("--levels", type=float, nargs="*", default=[0.5, 0.7, 0.8])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--blocks", type=int, nargs="*", help="widths; gcd of --hidden and 10")
    parser.add_argument("--search", type=float, metavar="EPS", help="log perplexity to lose")
    parser.add_argument("--amp", choices=("bfloat16",), help="mixed precision in training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    for name in text.FILES[options.corpus]:
        if not (options.data / name).exists():
            parser.error(
                f"{options.data} has no {name}; examples/data.md says where it comes from"
            )
    return options


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


def data_of(words: text.Words) -> RecoveryData:
    """Return what training and recovery work with; higher is better for `validate`."""
    return RecoveryData(
        train=words.train,
        validate=lambda m: -text.log_perplexity(m, words.held_out),
        criterion=text.loss,
    )


def trained(options: argparse.Namespace, words: text.Words) -> torch.nn.Module:
    """Return the dense model, from the output folder if an earlier run left it there."""
    torch.manual_seed(0)
    model = WordLSTM(words.vocabulary, options.hidden).to(options.device)
    kept = options.output / "dense.safetensors"
    if kept.exists():
        model.load_state_dict(load_file(kept))
    else:
        train(model, data_of(words), options.epochs, options.amp)
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


def found(
    options: argparse.Namespace, words: text.Words, model: torch.nn.Module, what: What
) -> Row:
    """Return the smallest model that a search finds with one way of recovery."""
    name, scheme, method = what
    result = nncfx.Compressor(
        model=model,
        objective=Minimize(footprint),
        scheme=scheme,
        optimizer=methods(options, len(words.train))[method],
        trainloader=words.train,
        valloader=words.held_out,
        testloader=words.test,
        criterion=text.loss,
        metric=lambda m, batches: -text.log_perplexity(m, batches),
        eps=options.search,
        folder=options.output / "search" / f"{name}, {method}",
    ).run()
    dense, small = result.evidence.dense, result.evidence.compressed
    return {
        "scheme": name,
        "level": result.level,
        "method": method,
        "log perplexity": -small.accuracy,
        "footprint": dense.footprint_bytes / small.footprint_bytes,
        "trials": len(result.search.trials) - 1,
    }


def tried(
    options: argparse.Namespace,
    words: text.Words,
    model: torch.nn.Module,
    what: What,
    level: float,
) -> Row:
    """Return what one way of recovery reaches at one level."""
    name, scheme, method = what
    recovery = methods(options, len(words.train))[method]
    result = recovery.recover(model, scheme, level, data_of(words))
    return {
        "scheme": name,
        "level": level,
        "method": method,
        "log perplexity": text.log_perplexity(result.model, words.test),
        "footprint": footprint_bytes(model) / footprint_bytes(result.compressed),
    }


def draw(path: Path, rows: Sequence[Row], dense: float) -> None:
    """Draw log perplexity over the level, a panel for each scheme; searched levels are dashed."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 (the table does without)
    except ImportError:
        return
    names = list(dict.fromkeys(row["scheme"] for row in rows))
    figure = Figure(figsize=(4 * len(names), 3.5), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for number, method in enumerate(METHODS):
            own = [row for row in rows if (row["scheme"], row["method"]) == (name, method)]
            points = sorted((row["level"], row["log perplexity"]) for row in own)
            places, heights = [x for x, _ in points], [y for _, y in points]
            axes.plot(places, heights, "o-", color=f"C{number}", label=method)
            for row in own:
                if "trials" in row:
                    axes.axvline(row["level"], color=f"C{number}", linestyle="--")
        axes.axhline(dense, color="grey", linestyle=":", label="dense")
        axes.set(title=name, xlabel="level", ylabel="log perplexity")
        axes.legend()
    figure.savefig(path)


def main() -> None:
    """Train, compress in every way, and write what came out as JSON, a table and a picture."""
    options = arguments()
    options.output.mkdir(parents=True, exist_ok=True)
    words = text.load(options.data / "data", options.corpus, options.vocabulary)
    model = trained(options, words)
    dense = text.log_perplexity(model, words.test)
    size = footprint_bytes(model)
    print(f"dense: log perplexity {dense:.4f} on the test words, {size:,} bytes\n")
    print("| scheme | level | method | log perplexity | change | footprint |")
    print("|---|---|---|---|---|---|", flush=True)
    path = options.output / "results.json"
    rows: list[Row] = json.loads(path.read_text()) if path.exists() else []

    def keep(row: Row) -> None:
        name = row["method"] + (f", found in {row['trials']} trials" if "trials" in row else "")
        loss = row["log perplexity"]
        print(
            f"| {row['scheme']} | {row['level']:.3g} | {name} | {loss:.4f} | {loss - dense:+.4f} "
            f"| {row['footprint']:.2f}x |",
            flush=True,
        )
        rows.append(row)
        path.with_suffix(".part").write_text(json.dumps(rows, indent=1))
        path.with_suffix(".part").replace(path)
        draw(path.with_suffix(".svg"), rows, dense)

    widths = [math.gcd(options.hidden, 10)] if options.blocks is None else options.blocks
    for (name, scheme), method in itertools.product(schemes(widths).items(), options.methods):
        what = name, scheme, method
        done = [row for row in rows if (row["scheme"], row["method"]) == (name, method)]
        for level in options.levels:
            if level not in [row["level"] for row in done if "trials" not in row]:
                keep(tried(options, words, model, what, level))
        if options.search is not None and not any("trials" in row for row in done):
            keep(found(options, words, model, what))


if __name__ == "__main__":
    main()
