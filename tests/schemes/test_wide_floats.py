"""Statistics of 16-bit floats are those of the same numbers in float32."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.algorithms.knowledge_distillation.loss import squared_distance
from nncfx.controllers import adapt_batch_norms
from nncfx.lc.lagrangian import augmented_penalty
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.bias_correction import channel_means
from nncfx.quantization.preparation.equalization import input_ranges
from nncfx.quantization.preparation.layer_chains import find_layers
from nncfx.quantization.ranges.calibration import weight_range
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.quantization.ranges.statistics import Extremes
from nncfx.quantization.rounding.block_reconstruction import RoundingSettings
from nncfx.quantization.rounding.input_moments import input_moments
from nncfx.quantization.rounding.layer_rounding import round_weights
from nncfx.schemes.masks.criteria import CRITERIA
from nncfx.schemes.masks.importance import mean_magnitude, mean_rank, nonzero_share
from nncfx.schemes.masks.magnitude_masks import magnitude_mask

HALVES = [torch.float16, torch.bfloat16]


def extremes(x: Tensor) -> Tensor:
    statistic = Extremes(axis=1, with_means=True)
    statistic.update(x)
    return torch.stack([statistic.low, statistic.high, *statistic.means()])


def weight_ends(x: Tensor) -> Tensor:
    return torch.stack(weight_range(x, RangeRequest(), QuantizerSpec(axis=0)))


STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: lambda x, one=one: one(x.flatten(1)) for name, one in CRITERIA.items()},
    "mean magnitude": mean_magnitude,
    "mean rank": mean_rank,
    "share that is not zero": nonzero_share,
    "channel means": lambda x: channel_means(x, 1),
    "extremes": extremes,
    "range of a weight": weight_ends,
    "penalty": lambda x: augmented_penalty(x, torch.zeros_like(x), torch.ones_like(x), 0.5),
    "distance of outputs": lambda x: squared_distance(x, torch.zeros_like(x)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(set(STATISTICS) - {"random"}))
def test_a_statistic_is_that_of_the_same_numbers_in_float32(name: str, dtype: torch.dtype) -> None:
    # sums of a hundred and more of these do not fit into float16
    generator = torch.Generator().manual_seed(0)
    x = (2000 * torch.randn(4, 3, 32, 32, generator=generator)).to(dtype)
    found = STATISTICS[name](x)
    assert found.dtype in {torch.float32, dtype if name in {"max", "min"} else torch.float32}
    torch.testing.assert_close(found.float(), STATISTICS[name](x.float()), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("module", "shape"), [(nn.Linear(6, 4), (900, 6)), (nn.Conv2d(3, 4, 3), (4, 3, 16, 16))]
)
def test_moments_do_not_overflow(
    module: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """The law of GPTQ, of which half of 16-bit models had infinite or coarse moments."""
    x = (100 * torch.randn(shape, generator=torch.Generator().manual_seed(0))).to(dtype)
    model = nncfx.wrap(nn.Sequential(copy.deepcopy(module)).to(dtype), x)
    (layer,) = find_layers(model, model.nncf.graph).values()
    (moments,) = input_moments(x, layer.module)
    assert moments.isfinite().all()
    torch.testing.assert_close([moments], input_moments(x.float(), layer.module), rtol=0, atol=0)
    assert input_ranges(layer, shape[1]).dtype == torch.float32


@pytest.mark.parametrize("method", ["gptq", "adaptive"])
@pytest.mark.parametrize("dtype", HALVES)
def test_rounding_by_data_loses_less_in_16_bits_as_well(dtype: torch.dtype, method: str) -> None:
    torch.manual_seed(0)
    x = 100 * torch.randn(256, 1) + 100 * torch.randn(256, 16)
    model = nncfx.quantization.quantize_weights(
        nn.Sequential(nn.Linear(16, 8)).to(dtype), [x.to(dtype)], bits=4, group_size=16
    )
    shares = round_weights(
        model, [x.to(dtype)], method=method, settings=RoundingSettings(steps=50)
    )
    assert 0 < shares["0"] <= 1
    assert model.get_submodule("0").weight.dtype == dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_batch_norms_adapt_as_in_float32(dtype: torch.dtype) -> None:
    """In 16 bits a running mean stops where a step is less than half of its last place."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(4, momentum=0.01)
    batches = [(300 + torch.randn(16, 4)).to(dtype) for _ in range(200)]
    exact, narrow = copy.deepcopy(norm), copy.deepcopy(norm).to(dtype)
    adapt_batch_norms(exact, [one.float() for one in batches], samples=3200)
    adapt_batch_norms(narrow, batches, samples=3200)
    assert narrow.running_mean.dtype == narrow.weight.dtype == dtype
    torch.testing.assert_close(narrow.running_mean, exact.running_mean.to(dtype))
    torch.testing.assert_close(narrow.running_var, exact.running_var.to(dtype))
    assert not narrow._forward_hooks
    assert narrow(batches[0]).dtype == dtype


@pytest.mark.parametrize("dtype", HALVES)
def test_masks_of_a_normed_ranking_are_those_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: (scale * torch.randn(64, 64, generator=generator)).to(dtype)
        for name, scale in (("a", 2000.0), ("b", 0.01))
    }
    wide = {name: one.float() for name, one in tensors.items()}
    found = magnitude_mask(tensors, 0.5, normed=True)
    expected = magnitude_mask(wide, 0.5, normed=True)
    assert all(torch.equal(found[name], expected[name]) for name in tensors)
