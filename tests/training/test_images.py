"""Images in memory, augmented a batch at a time."""

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.training import AugmentedImages


def made(count: int = 10, **changed: object) -> AugmentedImages:
    pixels = torch.randint(1, 256, (count, 3, 6, 7), generator=torch.Generator().manual_seed(1))
    settings = {
        "pixels": pixels.to(torch.uint8),
        "labels": torch.arange(count),
        "mean": torch.zeros(3),
        "std": torch.ones(3),
        "batch": 4,
        "shift": 2,
    }
    return AugmentedImages(**(settings | changed))  # type: ignore[arg-type]


def test_a_batch_depends_on_nothing_but_seed_and_step() -> None:
    first, again = made(), made()
    again(0), again(7)
    for one, other in zip(first(3), again(3), strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(made(seed=1)(3)[0], first(3)[0])


def test_a_pass_shows_no_image_twice_and_the_next_one_has_another_order() -> None:
    images = made(12)
    passes = [torch.cat([images(3 * turn + n)[1] for n in range(3)]) for turn in range(2)]
    assert all(sorted(one.tolist()) == list(range(12)) for one in passes)
    assert not torch.equal(*passes)


def test_every_image_is_a_shifted_window_of_its_own_on_black_mirrored_half_of_the_time() -> None:
    images = made(40, batch=40)
    mirrored, places = 0, set()
    for image, label in zip(*images(0), strict=True):
        padded = torch.zeros(3, 10, 11)
        padded[:, 2:8, 2:9] = images.pixels[label] / 255
        windows = {
            (up, left, flip): padded[:, up : up + 6, left : left + 7].flip(*([-1] * flip or [()]))
            for up in range(5)
            for left in range(5)
            for flip in (0, 1)
        }
        found = [place for place, window in windows.items() if torch.equal(window, image)]
        assert len(found) == 1
        mirrored += found[0][2]
        places.add(found[0][:2])
    assert 8 < mirrored < 32  # 20 +- 3.2, four deviations
    assert len(places) > 12  # of 25 equally likely ones, 40 draws


def test_without_shift_and_mirroring_undone_images_are_normalised_pixels_channels_last() -> None:
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.5, 1.0, 2.0])
    images = made(mean=mean, std=std)
    found = images.normalised(images.pixels)
    for channel in range(3):
        wanted = (images.pixels[:, channel].double() / 255 - mean[channel]) / std[channel]
        assert torch.allclose(found[:, channel].double(), wanted, atol=1e-6)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_mixup_adds_a_share_of_the_next_image_of_the_batch() -> None:
    plain, labels = made(40, batch=40)(3)
    mixed, same = made(40, batch=40, mixup=0.3)(3)
    assert torch.equal(labels, same)
    assert mixed.is_contiguous(memory_format=torch.channels_last)
    others = plain[[*range(1, 40), 0]]
    shares = ((mixed - plain) * (others - plain)).sum((1, 2, 3)) / (others - plain).square().sum(
        (1, 2, 3)
    )
    assert torch.allclose(mixed, plain + shares.view(-1, 1, 1, 1) * (others - plain), atol=1e-6)
    assert shares.min() > -1e-6
    assert 0.2 < shares.max() < 0.3  # of 40 draws from [0, 0.3]
    assert 0.1 < shares.mean() < 0.2  # 0.15 +- 0.014, more than three deviations


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"pixels": torch.zeros(10, 3, 6, 7)}, "uint8"),
        ({"pixels": torch.zeros(10, 6, 7, dtype=torch.uint8)}, "uint8"),
        ({"labels": torch.arange(9)}, "9 labels"),
        ({"batch": 11}, "batches of 11"),
        ({"batch": 0}, "batch"),
        ({"mixup": 0.6}, r"mixup is 0.6; it must be in \[0, 0.5\]"),
        ({"shift": -1}, "shift"),
    ],
)
def test_images_that_do_not_fit_together_are_refused(
    changed: dict[str, object], what: str
) -> None:
    with pytest.raises(ArgumentError, match=what):
        made(**changed)
