"""LowRank is the nearest matrix of its rank, and two thin layers compute the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import nn

import nncfx
from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import LowRank, factorize
from nncfx.schemes.low_rank import factorize_again, rank_of_energy, rank_of_level, truncate_rank

sizes = st.integers(1, 12)


def diagonal(*values: float) -> nn.Linear:
    model = nn.Linear(len(values), len(values))
    with torch.no_grad():
        model.weight.copy_(torch.diag(torch.tensor(values)))
    return model


def rank(matrix: torch.Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix.detach().flatten(1), rtol=1e-5))


def test_the_smallest_singular_values_go() -> None:
    model = diagonal(3.0, 1.0, 2.0)
    LowRank(rank=2).compress(model, 0.0)
    expected = torch.diag(torch.tensor([3.0, 0.0, 2.0]))
    torch.testing.assert_close(model.weight.detach(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("energy", "expected"), [(0.6, 1), (0.65, 2), (0.93, 3), (1.0, 3)])
def test_energy_is_the_share_of_squared_singular_values(energy: float, expected: int) -> None:
    # 9, 4 and 1 of 14: 0.643, 0.929, 1
    model = diagonal(3.0, 1.0, 2.0)
    LowRank(energy=energy).compress(model, 0.9)
    assert rank(model.weight) == expected


@given(rows=sizes, columns=sizes, level=st.floats(0.01, 0.99))
def test_two_factors_have_at_most_the_entries_that_the_level_leaves(
    rows: int, columns: int, level: float
) -> None:
    found = rank_of_level((rows, columns), level)
    assert found >= 1
    limit = (1 - level) * rows * columns + 1e-6
    assert found == 1 or found * (rows + columns) <= limit
    assert (found + 1) * (rows + columns) > limit


@given(rows=sizes, columns=sizes, cut=sizes, seed=st.integers(0, 99))
def test_no_other_matrix_of_the_rank_is_nearer(
    rows: int, columns: int, cut: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    low = truncate_rank(matrix, cut)
    other = torch.randn(rows, cut, generator=generator, dtype=torch.float64)
    # the best one within a random column space
    fitted = other @ torch.linalg.lstsq(other, matrix).solution if cut < rows else matrix
    near, far = torch.linalg.norm(matrix - low), torch.linalg.norm(matrix - fitted)
    assert near <= far + 1e-9 or cut >= min(rows, columns)


def test_zeros_have_rank_one_of_energy_and_stay() -> None:
    assert rank_of_energy(torch.zeros(3), 0.5) == 1
    assert rank_of_energy(torch.zeros(3), 1.0) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, "rank is 0"),
        ({"energy": 0.0}, "energy is 0.0"),
        ({"rank": 2, "energy": 0.5}, "Give one of them"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        LowRank(**settings)  # type: ignore[arg-type] # wrong on purpose


def test_weights_that_are_not_finite_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    nn.init.constant_(model[0].weight, float("nan"))
    with pytest.raises(CompressionError, match=r"'0\.weight' has entries that are not finite"):
        LowRank(rank=1).compress(model, 0.0)


def test_a_real_network_of_thin_layers_computes_the_same_with_fewer_weights() -> None:
    torch.manual_seed(0)
    model = resnet20_cifar10().eval()
    LowRank().compress(model, 0.6)
    thin = factorize(model)
    images = torch.randn(2, 3, 32, 32)
    expected = model(images)
    # rounding to float32 once per weight and layer, a dozen layers deep
    torch.testing.assert_close(thin(images), expected, rtol=1e-3, atol=1e-4)
    counts = [sum(p.numel() for p in m.parameters()) for m in (model, thin)]
    assert counts[1] < 0.42 * counts[0]


def test_strides_paddings_and_biases_go_with_the_factors() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(8, 16, 3, stride=2, padding=1, dilation=2, padding_mode="reflect"),
        nn.Flatten(),
        nn.Linear(144, 20),
    ).double()
    LowRank(rank=2).compress(model, 0.0)
    thin = factorize(model)
    assert [type(one).__name__ for one in thin[0]] == ["Conv2d", "Conv2d"]
    assert sorted(name for name, _ in thin.named_parameters()) == [
        "0.0.weight",
        "0.1.bias",
        "0.1.weight",
        "2.0.weight",
        "2.1.bias",
        "2.1.weight",
    ]
    images = torch.randn(2, 8, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(thin(images), model(images), rtol=1e-9, atol=1e-9)


def test_layers_that_would_not_shrink_and_shared_ones_stay() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    model[2].weight = model[1].weight
    LowRank(rank=1, ignored=("0",)).compress(model, 0.0)
    assert [type(one) for one in factorize(model)] == [nn.Linear] * 3


def bent() -> nn.Sequential:
    torch.manual_seed(0)
    first = nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect")
    return nn.Sequential(first, nn.ReLU(), nn.Conv2d(16, 8, 3), nn.Flatten(), nn.Linear(288, 32))


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("ending", ["safetensors", "nncfx"])
def test_two_thin_layers_are_read_into_a_dense_model(
    ending: str, quantized: bool, tmp_path: Path
) -> None:
    model, x = bent().eval(), torch.randn(2, 3, 8, 8)
    LowRank(rank=2, ignored=("0",)).compress(model, 0.0)
    model = factorize(model)
    with torch.no_grad():
        model[2][0].weight[:, 5:] = 0
    model = nncfx.thin(model, x).model
    assert model[2][0].in_channels == 5
    if quantized:
        model = nncfx.quantize(model, [x])
    nncfx.save(tmp_path / f"m.{ending}", model)
    _, again = nncfx.load(tmp_path / f"m.{ending}", bent)
    assert torch.equal(again.eval()(x), model(x))


def test_linear_layers_of_gpt_2_become_thin_and_are_read_again(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 8, "vocab_size": 11}
    config = transformers.GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    model, tokens = transformers.GPT2Model(config).eval().double(), torch.arange(6)[None]
    dense = model.h[0].mlp.c_fc.weight.detach().numpy().copy()
    LowRank(rank=3).compress(model, 0.0)
    left, values, right = np.linalg.svd(dense, full_matrices=False)
    expected = (left[:, :3] * values[:3]) @ right[:3]
    np.testing.assert_allclose(model.h[0].mlp.c_fc.weight.detach(), expected, atol=1e-12)
    thin = factorize(model)
    first, second = thin.h[0].mlp.c_fc
    assert (first.in_features, first.out_features, second.out_features) == (32, 3, 128)
    wanted = model(tokens).last_hidden_state
    torch.testing.assert_close(thin(tokens).last_hidden_state, wanted, rtol=0, atol=1e-12)
    nncfx.save(tmp_path / "m.nncfx", thin)
    _, again = nncfx.load(tmp_path / "m.nncfx", transformers.GPT2Model(config).double())
    assert torch.equal(again.eval()(tokens)[0], thin(tokens)[0])


def test_a_file_asks_for_no_more_rank_than_there_is() -> None:
    model = bent()
    factorize_again(model, {"4.0.weight": (2**40, 288), "4.1.weight": (32, 2**40)})
    assert type(model[4]) is nn.Linear
