"""Weights of any shape are codes in memory: experts of language models, convolutions."""

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn

import nncfx
from language_models import language_model
from nncfx.errors import StorageError
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.packing.parameters import parameter_records, parameters_again
from nncfx.quantization.weight_only import quantize_weights

TOKENS = torch.randint(60, (2, 9), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Save = Callable[[Path, nn.Module], object]


def experts() -> nn.Module:
    """A mixture of four experts, which have two weights of three axes together."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "moe_intermediate_size": 32, "head_dim": 8}
    return language_model("qwen3_moe", **sizes)


def convolutions() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3, groups=2)).eval()


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


def size(model: nn.Module) -> int:
    return sum(one.nbytes for one in model.state_dict().values())


@pytest.mark.parametrize("bits", [4, 8])
def test_experts_are_codes_that_compute_what_quantizers_do(bits: Literal[4, 8]) -> None:
    simulated = quantize_weights(experts(), example_inputs=TOKENS, bits=bits, group_size=16)
    small = quantize_weights(experts(), example_inputs=TOKENS, bits=bits, group_size=16, pack=True)
    torch.testing.assert_close(logits(small), logits(simulated), rtol=1e-4, atol=1e-5)
    codes = bits / 8 + 5 / 16  # of a scale of 4 bytes and a zero point for 16 weights
    weights = sum(one.numel() for one in experts().parameters() if one.ndim > 1)
    assert size(small) < 1.05 * codes * weights
    assert torch.equal(
        small.generate(TOKENS, max_new_tokens=3, do_sample=False),
        simulated.generate(TOKENS, max_new_tokens=3, do_sample=False),
    )


def test_experts_come_back_of_a_file(tmp_path: Path, save: Save) -> None:
    small = quantize_weights(experts(), example_inputs=TOKENS, bits=4, group_size=16, pack=True)
    save(tmp_path / "small", small)
    _, again = nncfx.load(tmp_path / "small", experts)
    assert torch.equal(logits(again), logits(small))
    assert size(again) == size(small)


def test_convolutions_come_back_of_a_file(tmp_path: Path, save: Save) -> None:
    small = quantize_weights(convolutions(), example_inputs=IMAGES, bits=8, pack=True)
    save(tmp_path / "small", small)
    _, again = nncfx.load(tmp_path / "small", convolutions)
    assert torch.equal(again(IMAGES), small(IMAGES))


@pytest.mark.parametrize(
    ("dtype", "places"), [(torch.float64, 6), (torch.bfloat16, 1.5), (torch.float16, 2.5)]
)
def test_weights_of_codes_follow_the_type_of_the_model(
    tmp_path: Path, save: Save, dtype: torch.dtype, places: float
) -> None:
    small = quantize_weights(convolutions(), example_inputs=IMAGES, bits=8, pack=True)
    expected = small(IMAGES)
    moved = copy.deepcopy(small).to(dtype)
    found = moved(IMAGES.to(dtype))
    assert found.dtype == dtype
    error = (found.double() - expected.double()).norm() / expected.double().norm()
    assert error < 10**-places
    save(tmp_path / "small", moved)
    _, again = nncfx.load(tmp_path / "small", lambda: convolutions().to(dtype))
    assert torch.equal(again(IMAGES.to(dtype)), found)
    assert torch.equal(small(IMAGES), expected)


def test_packed_convolutions_and_experts_are_pickled() -> None:
    small = quantize_weights(convolutions(), example_inputs=IMAGES, bits=4, pack=True)
    again = pickle.loads(pickle.dumps(small))  # noqa: S301 (what was just pickled)
    assert torch.equal(again(IMAGES), small(IMAGES))
    assert size(again) == size(small)
    assert torch.equal(again.half()(IMAGES.half()), small.half()(IMAGES.half()))
    small = quantize_weights(experts(), example_inputs=TOKENS, bits=8, pack=True)
    again = pickle.loads(pickle.dumps(small))  # noqa: S301 (as above)
    assert torch.equal(logits(again), logits(small))


def test_unpacking_a_model_leaves_it_packed() -> None:
    small = quantize_weights(convolutions(), example_inputs=IMAGES, bits=8, pack=True)
    expected = small(IMAGES)
    unpacked = unpack_weights(copy.deepcopy(small), IMAGES)
    assert torch.equal(unpacked(IMAGES), expected)
    assert torch.equal(small(IMAGES), expected)
    assert not parameter_records(unpacked)
    assert set(parameter_records(small)) == {"0.weight", "2.weight"}


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**40]},
        {"shape": None},
        {"shape": [8, 3, 3, "3"]},
        {"codes": "F7"},
        {"bits": "many"},
        {"codebook": "secret"},
        {"dtype": 3},
    ],
)
def test_damaged_records_are_refused(change: dict[str, Any]) -> None:
    small = quantize_weights(convolutions(), example_inputs=IMAGES, bits=8, pack=True)
    records = json.loads(json.dumps(parameter_records(small)))
    records["0.weight"] |= change
    with pytest.raises(StorageError):
        parameters_again(convolutions(), records)
