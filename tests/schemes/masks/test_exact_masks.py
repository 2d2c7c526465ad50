"""Masks have exact counts, break ties by position, and cover everything a channel touches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn

from nncfx.errors import ArgumentError, CompressionError, GraphError
from nncfx.graph.channels import Channels, GroupSet, Member, Role
from nncfx.schemes import (
    group_masks,
    group_scores,
    keep_groups,
    kept_count,
    magnitude_mask,
    zero_groups,
)

levels = st.floats(0, 1, exclude_max=True)
# few distinct values, so that ties are the rule
tied_weights = st.lists(
    st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12), min_size=1, max_size=4
)


def as_tensors(rows: list[list[float]]) -> dict[str, torch.Tensor]:
    return {f"w{i}": torch.tensor(row) for i, row in enumerate(rows)}


def of_rows(indices: list[list[int]], **axes: int) -> Channels:
    """Return one set of groups that make these entries along an axis of each parameter."""
    members = tuple(
        Member(parameter=name, axis=axis, indices=np.array(indices), role=Role.PRODUCER)
        for name, axis in axes.items()
    )
    return Channels((GroupSet(name=" ".join(axes), size=len(indices), members=members),))


@given(rows=tied_weights, level=levels)
def test_the_largest_stay_of_equals_the_earlier_and_exactly_so_many(
    rows: list[list[float]], level: float
) -> None:
    tensors = as_tensors(rows)
    flat = torch.cat(list(tensors.values())).abs()
    mask = torch.cat(list(magnitude_mask(tensors, level, minimum=0).values()))
    order = sorted(range(len(flat)), key=lambda i: (-float(flat[i]), i))
    count = len(flat) - math.floor(level * len(flat))
    assert set(mask.nonzero().flatten().tolist()) == set(order[:count])


@given(rows=tied_weights, level=levels)
def test_the_local_count_is_exact_in_each_tensor(rows: list[list[float]], level: float) -> None:
    masks = magnitude_mask(as_tensors(rows), level, scope="local")
    expected = [len(row) - math.floor(level * len(row)) for row in rows]
    assert [int(mask.sum()) for mask in masks.values()] == expected


@given(rows=tied_weights, level=levels, scale=st.sampled_from([0.5, 2.0, 1024.0, -4.0]))
def test_scaling_all_weights_keeps_the_mask(
    rows: list[list[float]], level: float, scale: float
) -> None:
    tensors = as_tensors(rows)
    scaled = {name: tensor * scale for name, tensor in tensors.items()}
    before, after = magnitude_mask(tensors, level), magnitude_mask(scaled, level)
    assert all(torch.equal(before[name], after[name]) for name in before)


@example(rows=[[0.0, 0.0]], level=0.0)
@given(rows=tied_weights, level=levels)
def test_the_minimum_keeps_every_tensor_alive(rows: list[list[float]], level: float) -> None:
    masks = magnitude_mask(as_tensors(rows), level)
    n = sum(len(row) for row in rows)
    kept = [int(mask.sum()) for mask in masks.values()]
    assert min(kept) >= 1
    assert sum(kept) == max(kept_count(n, level), len(rows))


def test_a_weak_tensor_keeps_its_largest_weight() -> None:
    masks = magnitude_mask(
        {"weak": torch.tensor([0.1, 0.3, 0.2]), "strong": torch.tensor([9.0, 8.0, 7.0])}, 0.5
    )
    assert masks["weak"].tolist() == [False, True, False]
    assert masks["strong"].tolist() == [True, True, False]


def test_shapes_and_dtypes_may_be_mixed() -> None:
    tensors = {"a": torch.ones(2, 3, dtype=torch.float16), "b": 2 * torch.ones(4)}
    masks = magnitude_mask(tensors, 0.5)
    assert masks["a"].shape == (2, 3)
    assert int(masks["a"].sum()) == 1
    assert masks["b"].all()


def test_no_tensors_give_no_masks() -> None:
    assert magnitude_mask({}, 0.5) == {}


def test_nan_weights_are_refused_by_name() -> None:
    with pytest.raises(CompressionError, match=r"'fc\.weight' has NaN entries"):
        magnitude_mask({"fc.weight": torch.tensor([1.0, float("nan")])}, 0.5)


@pytest.mark.parametrize("level", [1.0, -0.1, 30, float("nan"), True, "0.5"])
def test_what_is_no_level_is_refused(level: float) -> None:
    with pytest.raises(ArgumentError, match=r"lies in \[0, 1\)"):
        magnitude_mask({"w": torch.ones(2)}, level)


@pytest.mark.parametrize("minimum", [-1, 1.0, True, "1"])
def test_what_is_no_number_of_entries_is_refused(minimum: int) -> None:
    with pytest.raises(ArgumentError, match=r"minimum is .* whole number, at least 0"):
        magnitude_mask({"w": torch.ones(2)}, 0.5, minimum=minimum)


def test_an_unknown_scope_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'global' .* or 'local'"):
        magnitude_mask({"w": torch.ones(2)}, 0.5, scope="layer")  # type: ignore[arg-type] # the fault


def test_scores_are_criteria_of_all_producers_together(convnet_channels: Channels) -> None:
    weights = {"0.weight": torch.zeros(8, 3, 3, 3), "3.weight": torch.ones(12, 8, 3, 3)}
    weights["0.weight"][2, 0, 0, :2] = torch.tensor([3.0, -4.0])
    weights |= {"0.bias": torch.ones(8), "3.bias": torch.ones(12)}
    two_sets = Channels(convnet_channels.group_sets[:2])
    scores = group_scores(two_sets, weights, "l2norm", normalize=False)
    assert scores[0].tolist() == [0, 0, 5, 0, 0, 0, 0, 0]
    # 72 ones
    torch.testing.assert_close(scores[1], torch.full((12,), 72**0.5))


def test_two_producers_of_a_group_add_their_l1_norms() -> None:
    channels = of_rows([[0], [1]], a=0, b=1)
    weights = {"a": torch.tensor([[1.0, -1.0], [2.0, 0.0]]), "b": torch.tensor([[10.0, -20.0]])}
    [scores] = group_scores(channels, weights, "l1norm", normalize=False)
    assert scores.tolist() == [12.0, 22.0]


def test_normalized_scores_have_mean_one(convnet: nn.Module, convnet_channels: Channels) -> None:
    for scores in group_scores(convnet_channels, dict(convnet.named_parameters()), "l1norm"):
        assert scores.mean().item() == pytest.approx(1, rel=1e-6)


def test_small_scores_have_mean_one_too() -> None:
    weights = {"a": torch.tensor([[0.125], [0.375]])}
    [scores] = group_scores(of_rows([[0], [1]], a=0), weights, "l1norm")
    assert scores.tolist() == [0.5, 1.5]


def test_permuting_the_groups_permutes_their_scores(convnet_channels: Channels) -> None:
    first = Channels(convnet_channels.group_sets[:1])
    bias = torch.zeros(8)
    weight = torch.randn(8, 3, 3, 3, generator=torch.Generator().manual_seed(1))
    order = torch.tensor([3, 1, 7, 0, 2, 6, 5, 4])
    [before] = group_scores(first, {"0.weight": weight, "0.bias": bias}, "l2norm")
    permuted = {"0.weight": weight[order], "0.bias": bias}
    [after] = group_scores(first, permuted, "l2norm")
    torch.testing.assert_close(after, before[order])


def test_a_missing_producer_is_named(convnet_channels: Channels) -> None:
    with pytest.raises(GraphError, match=r"'0\.weight'.*Did you mean '0\.weights'"):
        group_scores(convnet_channels, {"0.weights": torch.ones(8, 3, 3, 3)}, "l1norm")


def test_groups_are_ranked_across_sets() -> None:
    keep = keep_groups([torch.tensor([1.0, 4.0]), torch.tensor([3.0, 2.0])], 0.5)
    assert [mask.tolist() for mask in keep] == [[False, True], [True, False]]


def test_no_set_is_emptied() -> None:
    keep = keep_groups([torch.tensor([1.0, 2.0]), torch.tensor([30.0, 20.0, 25.0])], 0.6)
    assert [mask.tolist() for mask in keep] == [[False, True], [True, False, False]]


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    level=levels,
    align=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_kept_counts_are_multiples_of_align(
    sizes: list[int], level: float, align: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.rand(size, generator=generator) for size in sizes]
    for size, mask in zip(sizes, keep_groups(scores, level, align=align), strict=True):
        kept = int(mask.sum())
        assert kept == size or (kept % align == 0 and kept > 0)


def test_level_zero_keeps_groups_that_no_multiple_of_align_holds() -> None:
    [keep] = keep_groups([torch.rand(10)], 0.0, align=8)
    assert keep.all()


def test_masks_cover_producers_followers_and_consumers_but_no_buffer(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    keep = [torch.ones(n, dtype=torch.bool) for n in (8, 12, 20)]
    keep[0][5] = False
    masks = group_masks(convnet_channels, keep, dict(convnet.named_parameters()))
    assert set(masks) == {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight"}
    assert masks["0.weight"].shape == (8, 1, 1, 1)
    assert masks["3.weight"].shape == (1, 8, 1, 1)
    assert all(int((~mask).sum()) == 1 for mask in masks.values())
    assert not masks["3.weight"][0, 5, 0, 0]


def test_masks_of_two_axes_of_one_weight_are_both_applied(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    keep = [torch.ones(n, dtype=torch.bool) for n in (8, 12, 20)]
    keep[0][0] = keep[1][1] = False
    mask = group_masks(convnet_channels, keep, dict(convnet.named_parameters()))["3.weight"]
    assert mask.shape == (12, 8, 1, 1)
    assert int(mask.sum()) == 11 * 7


def test_a_group_takes_all_its_columns_after_a_flatten(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    keep = [torch.ones(n, dtype=torch.bool) for n in (8, 12, 20)]
    keep[1][2] = False
    mask = group_masks(convnet_channels, keep, dict(convnet.named_parameters()))["6.weight"]
    assert (~mask).nonzero()[:, 1].tolist() == [8, 9, 10, 11]


def test_groups_are_set_to_zero_as_the_masks_say(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    keep = [torch.ones(n, dtype=torch.bool) for n in (8, 12, 20)]
    keep[0][5] = keep[1][2] = keep[1][0] = keep[2][19] = False
    weights = dict(convnet.named_parameters())
    masks = group_masks(convnet_channels, keep, weights)
    expected = {
        name: one.detach().where(masks.get(name, torch.tensor([True])), torch.zeros(()))
        for name, one in weights.items()
    }
    zero_groups(convnet_channels, keep, weights)
    assert {name for name, one in expected.items() if not one.all()} >= set(masks)
    assert all(torch.equal(weights[name], one) for name, one in expected.items())


def test_nothing_is_set_to_zero_where_a_weight_is_missing(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    weights = dict(convnet.named_parameters())
    before = {name: one.detach().clone() for name, one in weights.items()}
    keep = [torch.arange(n) > 0 for n in (8, 12, 20)]
    given = {name: one for name, one in weights.items() if name != "6.weight"}
    with pytest.raises(GraphError, match=r"No parameter '6\.weight'"):
        zero_groups(convnet_channels, keep, given)
    assert all(torch.equal(one, before[name]) for name, one in weights.items())


def test_masks_of_the_wrong_length_are_refused(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    with pytest.raises(ArgumentError, match=r"have \[8, 12, 20\] groups"):
        group_masks(
            convnet_channels, [torch.ones(8, dtype=torch.bool)], dict(convnet.named_parameters())
        )


def test_pruning_everything_is_refused_before_anything_changes(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    weights = dict(convnet.named_parameters())
    before = {name: one.clone() for name, one in weights.items()}
    nothing = [torch.zeros(one.size, dtype=torch.bool) for one in convnet_channels.prunable]
    for prune in (group_masks, zero_groups):
        with pytest.raises(ArgumentError, match=r"leaves none of the 40 groups.*Keep some"):
            prune(convnet_channels, nothing, weights)
    assert all(torch.equal(one, before[name]) for name, one in weights.items())
    nothing[1][5] = True  # whole sets may go, as residual branches do
    assert group_masks(convnet_channels, nothing, weights)


def test_a_criterion_that_writes_to_its_blocks_leaves_the_weights(
    convnet: nn.Module, convnet_channels: Channels
) -> None:
    weights = {name: one.detach() for name, one in convnet.named_parameters()}
    before = {name: one.clone() for name, one in weights.items()}
    written = group_scores(convnet_channels, weights, lambda blocks: blocks.abs_().sum(dim=1))
    assert all(torch.equal(one, before[name]) for name, one in weights.items())
    for one, other in zip(written, group_scores(convnet_channels, weights, "l1norm"), strict=True):
        torch.testing.assert_close(one, other)


def test_a_local_minimum_stays_in_each_tensor() -> None:
    masks = magnitude_mask(
        {"a": torch.tensor([4.0, 3.0, 2.0, 1.0]), "b": torch.tensor([1.0, 2.0])},
        0.9,
        scope="local",
        minimum=2,
    )
    assert masks["a"].tolist() == [True, True, False, False]
    assert masks["b"].tolist() == [True, True]


def test_a_set_whose_weights_are_all_zero_has_scores_of_zero() -> None:
    """Zero has no mean to be divided by: the set is the first to go, and nothing is NaN."""
    rows = [[0], [1]]
    sets = (*of_rows(rows, dead=0), *of_rows(rows, alive=0))
    weights = {"dead": torch.zeros(2, 3), "alive": torch.tensor([[1.0, 0, 0], [3.0, 0, 0]])}
    scores = group_scores(Channels(sets), weights)
    assert [one.tolist() for one in scores] == [[0.0, 0.0], [0.5, 1.5]]
    assert [one.tolist() for one in keep_groups(scores, 0.4)] == [[True, False], [True, True]]


def test_a_tensor_of_zeros_is_ranked_by_its_norm_too() -> None:
    tensors = {"dead": torch.zeros(2), "alive": torch.tensor([3.0, 4.0])}
    masks = magnitude_mask(tensors, 0.25, normed=True)
    assert masks["dead"].tolist() == [True, False]
    assert masks["alive"].all()


@pytest.mark.parametrize(
    ("rows", "expected"), [([[2, 0], [3, 1]], [101.0, 1010.0]), ([[1], [0]], [10.0, 1.0])]
)
def test_scores_follow_the_groups_where_these_are_not_in_the_order_of_the_rows(
    rows: list[list[int]], expected: list[float]
) -> None:
    weights = {"a": torch.tensor([[1.0], [10.0], [100.0], [1000.0]])}
    [scores] = group_scores(of_rows(rows, a=0), weights, "l1norm", normalize=False)
    assert scores.tolist() == expected


def test_the_bias_of_a_linear_layer_has_no_part_in_its_scores() -> None:
    channels = of_rows([[0], [1]], weight=0, bias=0)
    weights = {"weight": torch.tensor([[1.0], [2.0]]), "bias": torch.tensor([50.0, 0.0])}
    [scores] = group_scores(channels, weights, "l1norm", normalize=False)
    assert scores.tolist() == [1.0, 2.0]


def test_infinite_scores_have_a_rank_though_their_mean_is_none() -> None:
    """Infinities of both signs have a mean that is NaN; the scores are as they were given."""
    given = torch.tensor([math.inf, -math.inf])
    [scores] = group_scores(of_rows([[0], [1]], a=0), {"a": torch.ones(2, 3)}, lambda _: given)
    assert scores.tolist() == [math.inf, -math.inf]
