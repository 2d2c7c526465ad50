"""Learn weights, scales and biases of a quantized model block by block, from a few inputs."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError
from nncfx.float64 import in_float64
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.preparation.layer_chains import shared_parameters
from nncfx.quantization.ranges.observation import in_float, quantizers_of, with_values
from nncfx.quantization.rounding.blocks import Block, captured, find_blocks
from nncfx.storage.models.module_walk import all_modules
from nncfx.tracing import ExampleInputs, WeightSite

_LOGGER = logging.getLogger(__name__)
_MOST_BYTES: Final = 2**30
_LEAST_EXAMPLES: Final = 32
_POSITIONS: Final = 2**13
"""Positions of the block's output in a batch; a few large images give as good a gradient."""
_LEAST_BATCH: Final = 4
_STEPS_RATE: Final = 0.15
"""Learning rate of weights, in steps of their grids, as a share of `RoundingSettings.lr`."""
_SCALE_RATE: Final = 0.05
"""The same for vectors and ends of grids, relative to their magnitude."""


@dataclass(frozen=True, kw_only=True)
class RoundingSettings:
    """Settings of learned rounding.

    Attributes:
        steps: Number of steps of gradient descent.
        batch: Examples in each step.
        lr: Adam's learning rate.
        seed: Seed of the choice of examples.

    Raises:
        ArgumentError: a value is not positive.
    """

    steps: int = 300
    batch: int = 32
    lr: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "lr"):
            if getattr(self, name) <= 0:
                raise ArgumentError(
                    f"{name} is {getattr(self, name)}; it must be positive. Leave it out for the "
                    "default."
                )


def reconstruct_blocks(
    model: NNCFNetwork,
    layers: Iterable[str],
    batches: list[ExampleInputs],
    float_values: Mapping[str, Tensor],
    settings: RoundingSettings,
) -> dict[str, float]:
    """Train each quantized block to reproduce its float output, one block after another.

    The weights of `layers`, the scales of their grids, and the vectors in their block (biases,
    batch norms) are trained on the outputs of the quantized blocks before. Weights that were zero
    in float stay zero. A block is left unchanged if its error does not decrease, or if it gets
    more or fewer examples than in float.

    Args:
        model: With calibrated quantizers; training starts from its weights.
        layers: Dotted names of modules whose weight is changed by one quantizer only.
        batches: Inputs of the model.
        float_values: Float values of all parameters, by name.
        settings: Settings of the training.

    Returns:
        By layer, the squared error of its block's output as a share of that before. Layers in no
        block are left out.

    Source: Li et al. 2021, BRECQ: Pushing the Limit of Post-Training Quantization by Block
    Reconstruction; with learned step sizes (Esser et al. 2020) instead of stretched sigmoids.
    """
    blocks = find_blocks(model, list(layers), batches[0])
    data = _Data(model, blocks, batches, float_values)
    flags = [(one, one.training) for _, one in all_modules(model)]
    model.eval()
    shares: dict[str, float] = {}
    try:
        for number, block in enumerate(tracked(blocks, "Reconstructing blocks"), 1):
            share = _reconstruct(_Learned.of(model, block, float_values), block, data, settings)
            shares |= dict.fromkeys(block.layers, share)
            _LOGGER.info(
                "Block %d of %d, '%s' (%d layers): %.0f %% of its error is left",
                *(number, len(blocks), block.name, len(block.layers), 100 * share),
            )
    finally:
        for module, flag in flags:
            module.training = flag
    return shares


class _Data:
    """Quantized inputs and float outputs of blocks."""

    def __init__(
        self,
        model: NNCFNetwork,
        blocks: list[Block],
        batches: list[ExampleInputs],
        float_values: Mapping[str, Tensor],
    ) -> None:
        self._model, self._batches, self._values = model, batches, float_values
        self._quantizers = list(quantizers_of(model).values())
        self._float: dict[Block, Tensor] = {}
        self._quantized: dict[Block, Tensor] = {}
        self._readers = {one.follows for one in blocks}
        most = max((one.example_bytes for one in blocks), default=1)
        self._examples = max(_MOST_BYTES // (2 * most), _LEAST_EXAMPLES)

    def of(self, block: Block) -> tuple[Tensor, Tensor]:
        """Return the block's quantized input and its float output, n x ... each.

        Both are empty if their numbers of examples differ.
        """
        before = block.follows
        with in_float(self._quantizers), with_values(self._model, self._values):
            if before in self._float:
                wanted = self._computed(block, self._float.pop(before))
            else:
                wanted = captured(self._model, block, self._batches)[1]
        entering = self._quantized.pop(before, None) if before else None
        if entering is None:
            entering = captured(self._model, block, self._batches)[0]
        if len(entering) != len(wanted):  # an expert got other tokens
            return entering[:0], wanted[:0]
        return entering[: self._examples], wanted[: self._examples]

    def keep(self, block: Block, entering: Tensor, wanted: Tensor) -> None:
        """Keep the output of a trained block if another block reads it."""
        if block in self._readers:
            self._float[block] = wanted
            self._quantized[block] = self._computed(block, entering)

    @staticmethod
    def _computed(block: Block, x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([block(one) for one in _parts(x)])


def _reconstruct(
    learned: "_Learned", block: Block, data: _Data, settings: RoundingSettings
) -> float:
    entering, wanted = data.of(block)
    if not len(wanted):
        return 1.0
    before = _error(block, entering, wanted)
    with learned.learning():
        _descend(block, learned, (entering, wanted, before), settings)
    after = _error(block, entering, wanted)
    if not after < before:
        learned.restore()
        after = before
    data.keep(block, entering, wanted)
    return after / before if before > 0 else 1.0


def _parts(x: Tensor) -> Iterator[Tensor]:
    """Yield a few examples at a time."""
    for start in range(0, len(x), _LEAST_EXAMPLES):
        yield x[start : start + _LEAST_EXAMPLES]


def _error(block: Block, entering: Tensor, wanted: Tensor) -> float:
    total = 0.0
    with torch.no_grad():
        for x, y in zip(_parts(entering), _parts(wanted), strict=True):
            total += float(in_float64(block(x) - y).square().sum())
    return total / wanted.numel()


def _descend(
    block: Block,
    learned: "_Learned",
    data: tuple[Tensor, Tensor, float],
    settings: RoundingSettings,
) -> None:
    entering, wanted, unit = data
    optimizer = torch.optim.Adam(learned.groups(settings.lr))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.steps)
    generator = torch.Generator().manual_seed(settings.seed)
    positions = max(wanted[0].numel() // wanted.shape[1], 1) if wanted.ndim > 2 else 1  # noqa: PLR2004 (n x c)
    size = min(max(_POSITIONS // positions, _LEAST_BATCH), settings.batch, len(entering))
    for _ in range(settings.steps):
        drawn = torch.randint(len(entering), (size,), generator=generator, device="cpu")
        rows = drawn.to(entering.device)
        with torch.enable_grad():
            error = (block(entering[rows]) - wanted[rows]).square().mean() / max(unit, 1e-20)
            optimizer.zero_grad()
            error.backward()  # type: ignore[no-untyped-call]  # torch leaves it so
        optimizer.step()
        schedule.step()


@dataclass
class _Learned:
    """What is trained in a block.

    Attributes:
        weights: Weights with their quantizers.
        vectors: Biases and parameters of norms.
        unpruned: For each weight, which entries were not zero in float.
        held: All of these tensors and those of grids, with their original values.
    """

    weights: list[tuple[nn.Parameter, Quantizer]]
    vectors: list[nn.Parameter]
    unpruned: list[Tensor]
    held: list[tuple[Tensor, Tensor]]

    @classmethod
    def of(
        cls, model: NNCFNetwork, block: Block, float_values: Mapping[str, Tensor]
    ) -> "_Learned":
        quantizers = quantizers_of(model)
        stored = dict(model.named_parameters(remove_duplicate=False))
        shared = shared_parameters(model, model.nncf.graph)
        kept = {id(stored[name]) for name in shared}
        own = dict.fromkeys(chain.from_iterable(one.parameters() for one in block.modules))
        names = [f"{name}.weight".lstrip(".") for name in block.layers]
        weights = [(stored[name], quantizers[WeightSite.of(name)]) for name in names]
        unpruned = [float_values[name] != 0 for name in names]
        vectors = [
            one for one in own if one.ndim == 1 and one.is_floating_point() and id(one) not in kept
        ]
        tensors: list[Tensor] = [*(one for one, _ in weights), *vectors]
        tensors += [buffer for _, one in weights for buffer in (one.step, one.zero)]
        return cls(weights, vectors, unpruned, [(one, one.detach().clone()) for one in tensors])

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Enable gradients inside the block; at its end, round the weights to their grids."""
        tensors = [one for one, _ in self.weights] + self.vectors
        flags = [one.requires_grad for one in tensors]
        for one in tensors:
            one.requires_grad_(True)
        handles = [
            weight.register_hook(kept.mul)  # type: ignore[no-untyped-call]  # torch leaves it so
            for (weight, _), kept in zip(self.weights, self.unpruned, strict=True)
        ]
        for _, quantizer in self.weights:
            quantizer.learn()
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            for _, quantizer in self.weights:
                quantizer.freeze()
            for one, flag in zip(tensors, flags, strict=True):
                one.requires_grad_(flag)
                one.grad = None
            with torch.no_grad():
                for weight, quantizer in self.weights:
                    weight.copy_(quantizer(weight))
                    quantizer.was_learned = False  # the weight is on the grid: nothing is clipped

    def groups(self, rate: float) -> list[dict[str, Any]]:
        """Return the parameters with their learning rates."""
        found: list[dict[str, Any]] = []
        for weight, quantizer in self.weights:
            step = float(quantizer.scale.detach().mean())
            found.append({"params": [weight], "lr": rate * _STEPS_RATE * step})
            for grid in quantizer.parameters():
                size = float(grid.detach().abs().mean())
                found.append({"params": [grid], "lr": rate * _SCALE_RATE * size})
        for vector in self.vectors:
            size = max(float(vector.detach().square().mean().sqrt()), 0.1)
            found.append({"params": [vector], "lr": rate * _SCALE_RATE * size})
        return found

    def restore(self) -> None:
        """Restore the original values."""
        with torch.no_grad():
            for tensor, value in self.held:
                tensor.copy_(value)
