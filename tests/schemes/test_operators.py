"""Operators keep what reaches the threshold, and nothing else."""

import pytest
import torch

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import blockprune, dequantize, filter_prune, neuron_prune, prune, quantize
from nncfx.schemes.operators import (
    block_mask,
    block_scores,
    density,
    level_to_density,
    row_mask,
    sparsity,
    threshold,
)


def test_threshold_matches_condensas_own_examples() -> None:
    assert [threshold(torch.arange(30.0), d) for d in (0.2, 0.3, 0.5)] == [24.0, 21.0, 15.0]


def test_density_matches_condensas_own_example() -> None:
    values = torch.cat([torch.zeros(10), torch.ones(30)])
    assert (density(values), sparsity(values)) == (0.75, 0.25)


def test_threshold_refuses_to_keep_nothing() -> None:
    with pytest.raises(CompressionError, match="keeps none of 3 entries"):
        threshold(torch.ones(3), 0.2)


def test_threshold_refuses_nan() -> None:
    with pytest.raises(CompressionError, match="NaN"):
        threshold(torch.tensor([1.0, float("nan")]), 0.5)


@pytest.mark.parametrize("level", [0.0, 0.1, 0.3, 0.7, 0.9, 0.98, 0.99])
def test_decimal_levels_give_decimal_densities(level: float) -> None:
    assert level_to_density(level) == float(f"{1 - level:.6f}")


def test_prune_keeps_ties_at_the_threshold() -> None:
    weight = torch.tensor([[1.0, -2.0], [2.0, 0.5]])
    assert prune(weight, 2.0).tolist() == [[0.0, -2.0], [2.0, 0.0]]


def test_prune_leaves_its_argument_alone() -> None:
    weight = torch.tensor([1.0, 2.0])
    prune(weight, 1.5)
    assert weight.tolist() == [1.0, 2.0]


def test_block_scores_lie_on_the_grid_of_blocks() -> None:
    weight = torch.arange(24.0).reshape(4, 6)
    # the block in grid row 1, column 2 holds 16, 17, 22, 23
    assert block_scores(weight, (2, 2), "sum")[1, 2].item() == 16 + 17 + 22 + 23
    assert block_scores(weight, (2, 3), "max").shape == (2, 2)


def test_a_block_goes_as_a_whole() -> None:
    weight = torch.ones(4, 4)
    weight[:2, 2:] = 9
    kept = blockprune(weight, 10.0, (2, 2), "sum")
    assert kept.tolist() == [[0, 0, 9, 9], [0, 0, 9, 9], [0, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("block", [(3, 2), (2,), (2, 0)])
def test_blocks_that_do_not_tile_are_refused(block: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="do not tile a weight of"):
        blockprune(torch.ones(4, 4), 1.0, block)


def test_filter_prune_zeroes_the_bias_of_a_filter_that_goes() -> None:
    weight = torch.ones(2, 1, 2, 2)
    weight[1] *= 3
    pruned, bias = filter_prune(weight, 3.0, bias=torch.tensor([5.0, 6.0]))
    assert pruned.flatten(1).sum(1).tolist() == [0.0, 12.0]
    assert bias is not None
    assert bias.tolist() == [0.0, 6.0]


def test_neuron_prune_compares_rows() -> None:
    pruned, bias = neuron_prune(torch.tensor([[3.0, 4.0], [1.0, 1.0]]), 5.0)
    assert pruned.tolist() == [[3.0, 4.0], [0.0, 0.0]]
    assert bias is None


def test_operators_refuse_weights_of_another_rank() -> None:
    with pytest.raises(ArgumentError, match="Use neuron_prune"):
        filter_prune(torch.ones(2, 2), 1.0)
    with pytest.raises(ArgumentError, match="Use filter_prune"):
        neuron_prune(torch.ones(2, 2, 1, 1), 1.0)


def test_align_rounds_the_count_down_and_keeps_the_largest() -> None:
    rows = torch.tensor([5.0, 1.0, 4.0, 3.0, 2.0]).view(5, 1)
    # three rows reach 3.0; the multiple of two below is two
    assert row_mask(rows, 3.0, align=2).tolist() == [True, False, True, False, False]


def test_align_breaks_ties_by_position() -> None:
    assert row_mask(torch.ones(5, 1), 1.0, align=4).tolist() == [True] * 4 + [False]


def test_align_above_the_number_of_blocks_is_refused() -> None:
    with pytest.raises(ArgumentError, match="has 2 blocks"):
        row_mask(torch.ones(2, 3), 1.0, align=4)


def test_half_precision_scores_meet_the_threshold_unrounded() -> None:
    # 1.0004 rounds to 1.0 in float16, and must not let 1.0 pass
    weight = torch.ones(1, 1, dtype=torch.float16)
    assert not block_mask(weight, 1.0004, (1, 1), "max").any()


def test_quantize_rounds_to_the_nearest_float16() -> None:
    # 11 bits: 2049 lies halfway between 2048 and 2050, and ties go to even
    assert quantize(torch.tensor([2049.0, 2051.0]), "float16").tolist() == [2048.0, 2052.0]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_quantize_is_idempotent(dtype: str) -> None:
    once = dequantize(quantize(torch.randn(100), dtype))
    assert torch.equal(dequantize(quantize(once, dtype)), once)


def test_overflow_is_refused() -> None:
    with pytest.raises(CompressionError, match=r"70000, does not fit torch\.float16"):
        quantize(torch.tensor([7e4]), torch.float16)


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Did you mean 'float16'"):
        quantize(torch.ones(1), "flaot16")
