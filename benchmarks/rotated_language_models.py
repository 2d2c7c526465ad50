"""What rotations buy a small language model whose weights have 4 bits and activations 8 or 4.

The model is that of `quantized_language_models.py`, trained here and kept in a folder of work; as
it is, and with the axes of its residual stream turned to the principal components, which computes
the same with few channels that hold most, as large language models have them. What layers of
blocks read is rounded for each token by itself, symmetric; weights are rounded to nearest.

    python benchmarks/rotated_language_models.py --data ../shared/data --work FOLDER --sizes 1M
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from quantized_language_models import GROUP, arguments, perplexity, text, trained, windows
from torch import Tensor, nn

from nncfx.quantization import QuantizerSpec, fake_quantize, qparams_from_range
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.packing.layers import PackedLinear
from nncfx.quantization.preparation.residual_stream import residual_stream
from nncfx.quantization.preparation.rotation import rotate, rotate_stream
from nncfx.tracing import trace

SETTINGS = WeightSettings(weights="int4", group_size=GROUP, method="round")


@torch.no_grad()
def concentrated(model: nn.Module, batch: Tensor) -> nn.Module:
    """Return a copy whose channels are the principal components of its residual stream."""
    norms = [one for name, one in model.named_modules() if name.endswith("norm")]
    moments = []

    def note(_: nn.Module, args: tuple[Tensor, ...]) -> None:
        rows = args[0].double().flatten(0, 1)
        moments.append(rows.T @ rows)

    handles = [one.register_forward_pre_hook(note) for one in norms]
    model(input_ids=batch)
    for handle in handles:
        handle.remove()
    energies, axes = torch.linalg.eigh(sum(moments))
    print(f"the largest channel has {energies[-1] / energies.mean():.0f} times the mean energy")
    other = copy.deepcopy(model)
    rotate_stream(other, residual_stream(other, trace(other, {"input_ids": batch})), axes)
    return other


@contextmanager
def rounding(model: nn.Module, bits: int) -> Iterator[None]:
    """Let the layers of blocks read what is rounded to `bits`, token by token."""
    spec = QuantizerSpec(bits=bits, axis=0, narrow=True)

    def rounded(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        rows = args[0].reshape(-1, args[0].shape[-1])
        grid = qparams_from_range(rows.amin(1), rows.amax(1), spec)
        return (fake_quantize(rows, *grid, spec).view_as(args[0]), *args[1:])

    layers = [one for one in model.modules() if isinstance(one, PackedLinear)]
    handles = [one.register_forward_pre_hook(rounded) for one in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def decibels(model: nn.Module, exact: nn.Module, batch: Tensor) -> float:
    """Return the signal-to-noise ratio of the logits."""
    found, wanted = (one(input_ids=batch).logits for one in (model, exact))
    return 10 * math.log10(wanted.square().sum() / (found - wanted).square().sum())


def main() -> None:
    """Print perplexities with and without rotation."""
    options = arguments()
    train, test = text(options.data)
    test = test[: len(test) // 4]
    for size in options.sizes:
        model = trained(size, train, options.work)
        batches = [{"input_ids": one} for one in windows(train, 32, 10**6).split(16)]
        probe = windows(test, 32, 3)
        for label, exact in (
            ("trained", model),
            ("concentrated", concentrated(model, batches[0]["input_ids"])),
        ):
            print(f"{size} {label}, float: {perplexity(exact, test):.4f}", flush=True)
            turned = rotate(exact, batches[0])
            print(f"{size} {label}, rotated, float: {decibels(turned, exact, probe):.1f} dB")
            for name, before in (("", exact), (", rotated", turned)):
                small = quantize_blocks(before, batches, SETTINGS)
                for bits in (8, 4):
                    with rounding(small, bits):
                        found, ratio = perplexity(small, test), decibels(small, exact, probe)
                    print(
                        f"{size} {label}{name}, W4A{bits}: {found:.4f}, {ratio:.1f} dB", flush=True
                    )


if __name__ == "__main__":
    main()
