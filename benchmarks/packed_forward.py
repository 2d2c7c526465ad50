"""The forward of a language model with packed weights beside the same in float, in turns.

A Llama of 110 million parameters (12 blocks of width 768, 32,000 tokens, tied, random weights)
runs one sequence in float32: eager, and with `--compiled` as torch.compile makes it, whose
compilation is not counted; neither is numba's, since each model runs before the clock does.
`--plain` adds packed layers without numba. Medians of wall times:

    OMP_NUM_THREADS=2 python benchmarks/packed_forward.py --threads 2 [--tokens 1 16] [--compiled]
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from nncfx.quantization.packing import products
from nncfx.quantization.weight_only import quantize_weights

FORMATS = {
    "int8": {"bits": 8},
    "uint4, groups of 32": {"bits": 4, "group_size": 32},
    "uint4, groups of 128": {"bits": 4, "group_size": 128},
}


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 16, 128, 512])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each row, at most")
    parser.add_argument("--formats", nargs="+", choices=tuple(FORMATS), default=tuple(FORMATS))
    parser.add_argument("--compiled", action="store_true", help="torch.compile each model, too")
    parser.add_argument("--plain", action="store_true", help="packed layers without numba, too")
    return parser.parse_args()


def language_model() -> nn.Module:
    """Return the model in float."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32_000, hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
        num_key_value_heads=12, intermediate_size=2048, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def without_numba(run: Callable[[], object]) -> Callable[[], object]:
    """Return `run` with the packed layers' loops in torch alone."""

    def plain() -> object:
        kept = products.IS_COMPILED
        products.IS_COMPILED = False
        try:
            return run()
        finally:
            products.IS_COMPILED = kept

    return plain


def subjects(options: argparse.Namespace) -> Iterator[tuple[str, nn.Module]]:
    """Yield the models by label, the float one first."""
    model = language_model()
    found = {"float": model}
    for name in options.formats:
        example = {"input_ids": torch.zeros(1, 4, dtype=torch.long)}
        found[name] = quantize_weights(model, example_inputs=example, pack=True, **FORMATS[name])
    yield from found.items()
    if options.compiled:
        for name, one in found.items():
            yield f"{name}, compiled", torch.compile(one, dynamic=False)


def medians(
    calls: dict[str, Callable[[], object]], options: argparse.Namespace
) -> dict[str, float]:
    """Return the median milliseconds of each call; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    end = time.perf_counter() + options.seconds * len(calls)
    for _ in range(options.rounds * 1000):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begin) * 1e3)
        if time.perf_counter() > end and len(times["float"]) >= options.rounds:
            break
    return {name: statistics.median(one) for name, one in times.items()}


def call_of(model: nn.Module, tokens: Tensor) -> Callable[[], object]:
    """Return what runs `model` on 1 x n tokens."""

    def call() -> object:
        with torch.no_grad():
            return model(input_ids=tokens)

    return call


def main() -> None:
    """Print a table."""
    options = arguments()
    torch.set_num_threads(options.threads)
    torch._dynamo.config.cache_size_limit = 64  # noqa: SLF001 (a program for each length)
    models = dict(subjects(options))
    print(f"{options.threads} threads\n\n| tokens | model | ms | of float |\n|---:|---|---:|---:|")
    for count in options.tokens:
        tokens = torch.randint(32_000, (1, count), generator=torch.Generator().manual_seed(0))
        calls = {name: call_of(one, tokens) for name, one in models.items()}
        if options.plain:
            for name in [one for one in options.formats if one in calls]:
                calls[f"{name}, without numba"] = without_numba(calls[name])
        found = medians(calls, options)
        for name, ms in found.items():
            print(f"| {count} | {name} | {ms:.1f} | {ms / found['float']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
