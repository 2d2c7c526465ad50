"""N of M: every group, the largest, the earlier of equals."""

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nncfx.algorithms.nm_sparsity.masks import nm_mask
from nncfx.compressor import create_compressed_model
from nncfx.errors import ArgumentError, CompressionError


@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)),
    n=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_every_group_keeps_its_n_largest(shape: tuple[int, int, int], n: int, seed: int) -> None:
    o, groups, k = shape
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(-3, 4, (o, groups * 4, k), generator=generator).float()
    mask = nm_mask(weight, n, 4)
    for row in range(o):
        for group in range(groups):
            for column in range(k):
                cells = [(row, 4 * group + i, column) for i in range(4)]
                ranked = sorted(cells, key=lambda cell: -abs(float(weight[cell])))
                assert {cell for cell in cells if mask[cell]} == set(ranked[:n])


@pytest.mark.parametrize("m", [4, 16, 17, 40])
@pytest.mark.parametrize("axis", [0, 1])
def test_groups_of_any_size_keep_what_a_stable_order_puts_first(m: int, axis: int) -> None:
    weight = torch.randint(-3, 4, (2 * m, 2 * m), generator=torch.Generator().manual_seed(0))
    groups = np.abs(np.moveaxis(weight.numpy(), axis, -1)).reshape(-1, m)
    order = np.argsort(-groups, axis=-1, kind="stable")
    expected = np.zeros(groups.shape, dtype=bool)
    np.put_along_axis(expected, order[:, : m // 2], values=True, axis=-1)
    found = np.moveaxis(nm_mask(weight.float(), m // 2, m, axis).numpy(), axis, -1)
    assert (found.reshape(-1, m) == expected).all()


@pytest.mark.parametrize("shape", [(3,), (2, 6), (2, 3, 3, 3)])
def test_channels_that_make_no_groups_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="no axis 1 of a multiple of 4"):
        nm_mask(torch.ones(shape), 2, 4)


def applied(model: nn.Module, shape: tuple[int, ...], **params: int):  # noqa: ANN201 (the pair)
    item = {"algorithm": "nm_sparsity", "params": params}
    return create_compressed_model(model, {"compression": item}, torch.ones(shape))


def test_the_pattern_holds_from_its_epoch_on() -> None:
    controller, model = applied(nn.Linear(8, 3), (1, 8), start_epoch=1)
    kept = []
    for _ in range(2):
        controller.scheduler.epoch_step()
        kept.append(
            (model.nncf.weight("weight") != 0).unflatten(1, (-1, 4)).sum(dim=2).unique().tolist()
        )
    assert kept == [[4], [2]]


@pytest.mark.parametrize(("n", "m"), [(1, 3), (2, 3), (1, 10), (7, 10), (1, 4)])
def test_the_level_of_a_pattern_takes_exactly_m_minus_n(n: int, m: int) -> None:
    controller, model = applied(nn.Linear(3 * m, 2), (1, 3 * m), n=n, m=m)
    controller.scheduler.epoch_step()
    assert (model.nncf.weight("weight") != 0).sum() == 2 * 3 * n
    assert controller.statistics().level == pytest.approx(1 - n / m)


def test_layers_that_make_no_groups_are_left_alone() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 4, 1))
    controller, _ = applied(model, (1, 3, 8, 8))
    assert [layer.name for layer in controller.statistics().layers] == ["2.weight"]


def test_a_model_without_groups_is_refused() -> None:
    with pytest.raises(CompressionError, match="inputs are a multiple of 4"):
        applied(nn.Linear(6, 6), (1, 6))


def test_groups_follow_the_inputs_of_a_layer_whose_columns_make_the_outputs() -> None:
    layer = transformers.pytorch_utils.Conv1D(6, 8)
    controller, model = applied(layer, (1, 8))
    controller.scheduler.epoch_step()
    assert (model.nncf.weight("weight") != 0).unflatten(0, (2, 4)).sum(dim=1).unique() == 2


def test_products_that_say_no_axis_are_left_out() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.ones(8, 8)), nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.addmm(self.bias, x, self.weight)

    with pytest.raises(CompressionError, match="finds no weight"):
        applied(Product(), (1, 8))
