"""Images in memory, augmented a batch at a time."""

import functools
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from nncfx.errors import ArgumentError
from nncfx.schemes.masks.exact_masks import check_at_least


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class AugmentedImages:
    """Batches of shifted and mirrored images: batch `step` is a function of `seed` and `step`.

    A training that was killed thus continues with the same batches. Every pass over the images has
    its own order; images that do not fill a batch are left to the next pass.

    Attributes:
        pixels: `n x c x h x w`, uint8.
        labels: `n`, int64.
        mean: `c`, subtracted from pixels / 255.
        std: `c`, the divisor after that.
        batch: Images in a batch, in [1, n].
        shift: The largest shift in pixels along either axis; uncovered pixels are black.
        seed: Of orders, shifts, mirrorings and shares.
        mixup: Each image is mixed with a share of the next one of its batch, uniform in [0,
            mixup]; at most 0.5, so that its label keeps the larger part (Zhang et al., mixup,
            2018). For a teacher that sees the same images (Beyer et al., Knowledge distillation: A
            good teacher is patient and consistent, 2022).
            teacher is patient and consistent, 2022).

    Raises:
        ArgumentError: a shape, a dtype or a number is out of range.
    """

    pixels: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    batch: int = 128
    shift: int = 4
    seed: int = 0
    mixup: float = 0.0

    def __post_init__(self) -> None:
        check_at_least("batch", self.batch, 1)
        check_at_least("shift", self.shift, 0)
        if not 0 <= self.mixup <= 0.5:  # noqa: PLR2004 (half)
            raise ArgumentError(f"mixup is {self.mixup!r}; it must be in [0, 0.5].")
        shape = tuple(self.pixels.shape)
        if self.pixels.dtype != torch.uint8 or self.pixels.ndim != 4:  # noqa: PLR2004 (n c h w)
            raise ArgumentError(
                f"pixels are {self.pixels.dtype} of shape {shape}; they must be uint8 of "
                "n x c x h x w, before any normalization."
            )
        if len(self.labels) != len(self.pixels) or self.batch > len(self.pixels):
            raise ArgumentError(
                f"There are {len(self.pixels)} images, {len(self.labels)} labels and batches of "
                f"{self.batch}; give one label an image, and batches of at most all images."
            )

    @property
    def steps_per_pass(self) -> int:
        """The number of batches per pass."""
        return len(self.pixels) // self.batch

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Return batch `step`, counted from 0: `batch x c x h x w` float32, channels last."""
        turn, place = divmod(step, self.steps_per_pass)
        device = self.pixels.device
        order = _order(len(self.pixels), self.seed, turn)
        rows = order[place * self.batch : (place + 1) * self.batch]
        generator = _generator(self.seed, turn, place + 1)
        span = 2 * self.shift + 1
        shifts = torch.randint(span, (2, self.batch), generator=generator, device="cpu")
        is_mirrored = torch.rand(self.batch, generator=generator, device="cpu") < 0.5  # noqa: PLR2004 (half)
        shares = torch.rand(self.batch, generator=generator, device="cpu") * self.mixup
        # non-blocking, since a synchronous copy would stall the GPU at every step
        rows, shifts, is_mirrored, shares = (
            one.to(device, non_blocking=True) for one in (rows, shifts, is_mirrored, shares)
        )
        pixels = _shifted(self.pixels[rows], shifts, is_mirrored, self.shift)
        images = self.normalised(pixels)
        if self.mixup:
            images = images.lerp(images.roll(-1, 0), shares.view(-1, 1, 1, 1))
        return images, self.labels[rows]

    def normalised(self, pixels: Tensor) -> Tensor:
        """Return `pixels` (n x c x h x w, uint8) as network inputs, channels last."""
        mean, std = (one.to(pixels.device).view(1, -1, 1, 1) for one in (self.mean, self.std))
        images = pixels.contiguous(memory_format=torch.channels_last).float()
        return images.div_(255).sub_(mean).div_(std)


@functools.lru_cache(maxsize=4)
def _order(count: int, seed: int, turn: int) -> Tensor:
    """Return the order of a pass; drawn once per pass, not at each step."""
    return torch.randperm(count, generator=_generator(seed, turn, 0), device="cpu")


def _generator(seed: int, turn: int, place: int) -> torch.Generator:
    """Return a generator of a pass (`place` 0) or of one of its batches (from 1)."""
    # combine three numbers into one seed: torch's generators mix close seeds well
    return torch.Generator().manual_seed((seed * 1_000_003 + turn) * 1_000_003 + place)


def _shifted(pixels: Tensor, shifts: Tensor, is_mirrored: Tensor, most: int) -> Tensor:
    """Return each image moved by its `shifts` (2 x n, in [0, 2 most]) and optionally mirrored."""
    height, width = pixels.shape[-2:]
    padded = F.pad(pixels, (most,) * 4).permute(0, 2, 3, 1)
    rows = shifts[0].unsqueeze(1) + torch.arange(height, device=pixels.device)
    line = torch.arange(width, device=pixels.device)
    lines = torch.where(is_mirrored.unsqueeze(1), line.flip(0), line)
    columns = shifts[1].unsqueeze(1) + lines
    each = torch.arange(len(pixels), device=pixels.device).view(-1, 1, 1)
    return padded[each, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
