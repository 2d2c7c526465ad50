"""What each consumer reads of channels in a given order."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nncfx.errors import ArgumentError
from nncfx.export import ChannelRead, channel_order, channel_reads, copied_channels


def test_the_published_walk_through_reads_two_slices() -> None:
    # A producer of four channels whose consumers drop 0 and 1: both read slices of three.
    first, second = channel_reads([1, 2, 3, 0], [{1, 2, 3}, {0, 2, 3}])
    assert (first.start, first.stop, first.channels) == (0, 3, (1, 2, 3))
    assert (second.start, second.stop, second.channels) == (1, 4, (2, 3, 0))
    assert first.is_contiguous
    assert second.is_contiguous


def test_scattered_channels_have_the_slice_that_spans_them() -> None:
    (read,) = channel_reads([4, 3, 2, 1, 0], [{4, 1}])
    assert read == ChannelRead(
        positions=(0, 3), channels=(4, 1), is_contiguous=False, is_whole=False
    )
    assert (read.start, read.stop) == (0, 4)


def test_all_channels_are_whole_and_none_is_an_empty_slice() -> None:
    everything, nothing = channel_reads([2, 0, 1], [{0, 1, 2}, set()])
    assert everything.is_whole
    assert everything.is_contiguous
    assert (nothing.start, nothing.stop, nothing.is_whole) == (0, 0, False)
    assert nothing.is_contiguous


def test_copies_are_all_channels_of_a_scattered_consumer_times_its_weight() -> None:
    keeps = [{0, 1}, {0, 2}, {1, 2, 3, 0}, {3, 1, 0}]
    assert copied_channels([0, 1, 2, 3], keeps) == 2 + 3
    assert copied_channels([0, 1, 2, 3], keeps, weights=[9, 10, 9, 0.5]) == 20 + 1.5


# No deadline: the first convolution of a process also loads its kernels.
@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=4))
def test_a_convolution_gives_the_same_when_producer_and_consumers_are_reordered(
    keeps: list[set[int]],
) -> None:
    generator = torch.Generator().manual_seed(0)
    activation = torch.randn(2, 7, 5, 5, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, 7, 3, 3, generator=generator, dtype=torch.float64)
    order = channel_order(keeps, size=7)
    reordered = activation[:, order]
    for keep, read in zip(keeps, channel_reads(order, keeps), strict=True):
        mask = torch.zeros(7, dtype=torch.float64)
        mask[sorted(keep)] = 1
        masked = torch.conv2d(activation, weight * mask[:, None, None])
        if read.is_contiguous:
            selected = reordered[:, read.start : read.stop]
        else:
            selected = reordered[:, list(read.positions)]
        thinned = torch.conv2d(selected, weight[:, list(read.channels)])
        # 63 products of standard normal numbers, summed in two orders: 63 * 2**-52 * 10.
        torch.testing.assert_close(thinned, masked, rtol=0, atol=2e-13)


def test_an_order_that_names_a_channel_twice_is_refused() -> None:
    with pytest.raises(ArgumentError) as raised:
        channel_reads([0, 1, 0], [{0}])
    assert str(raised.value) == (
        "order holds channel 0 twice; each channel has one position. "
        "Pass what channel_order returned."
    )


def test_a_kept_channel_that_the_order_lacks_is_refused() -> None:
    with pytest.raises(ArgumentError) as raised:
        copied_channels([0, 1], [{0}, {2}])
    assert str(raised.value) == (
        "keeps[1] holds channel 2, which is not in the order of 2 channels. "
        "Pass the keeps that the order was made for."
    )
