"""Models of packed layers go into files, and come back of fresh ones."""

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from language_models import language_model
from nncfx.errors import StorageError
from nncfx.quantization.blocks.block_engine import WeightSettings, _warn_unscaled, quantize_blocks
from nncfx.quantization.blocks.weight_formats import WeightFormat
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.packing.records import packed_again, packed_records
from nncfx.quantization.weight_only import quantize_weights
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import prunable_channels, thin
from small_models import Function

TOKENS = torch.randint(90, (2, 9), generator=torch.Generator().manual_seed(0))
Save = Callable[[Path, nn.Module], object]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 33)).eval()


def logits(model: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(TOKENS).logits


@pytest.mark.parametrize("weights", ["int8", "int4", "uint4", "nf4", "float8_e4m3", "mxfp4"])
def test_a_language_model_of_codes_comes_back_with_its_ties(
    tmp_path: Path, save: Save, weights: WeightFormat
) -> None:
    settings = WeightSettings(weights=weights, group_size=32, method="round")
    small = quantize_blocks(language_model("gpt2"), [{"input_ids": TOKENS}], settings, rest="int8")
    save(tmp_path / "small", small)
    _, again = nncfx.load(tmp_path / "small", language_model("gpt2"))
    assert torch.equal(logits(again), logits(small))
    assert again.lm_head.codes.data_ptr() == again.transformer.wte.codes.data_ptr()
    assert packed_records(again) == packed_records(small)
    assert all(
        one.dtype == again.state_dict()[name].dtype for name, one in small.state_dict().items()
    )


def test_what_was_thinned_and_then_packed_comes_back(tmp_path: Path, save: Save) -> None:
    model, inputs = network(), torch.randn(4, 8)
    channels, weights = prunable_channels(model, inputs), dict(model.named_parameters())
    zero_groups(channels, keep_groups(group_scores(channels, weights, "l1norm"), 0.5), weights)
    thinned = thin(model, inputs, channels=channels).model
    small = quantize_weights(thinned, example_inputs=inputs, bits=4, pack=True)
    save(tmp_path / "small", small)
    _, again = nncfx.load(tmp_path / "small", network)
    assert torch.equal(again(inputs), small(inputs))


def test_a_layer_alone_comes_back(tmp_path: Path) -> None:
    inputs = torch.randn(4, 8)
    small = quantize_weights(nn.Linear(8, 3), example_inputs=inputs, bits=8, pack=True)
    nncfx.save(tmp_path / "small", small)
    assert torch.equal(nncfx.load(tmp_path / "small", nn.Linear(8, 3))[1](inputs), small(inputs))


def test_a_file_of_another_model_leaves_that_model_as_it_was(tmp_path: Path) -> None:
    inputs = torch.randn(4, 8)
    small = quantize_weights(network(), example_inputs=inputs, bits=8, pack=True)
    nncfx.save(tmp_path / "small", small)
    other = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 5)).eval()
    before = copy.deepcopy(other)
    with pytest.raises(StorageError, match=r"codes for a layer '2', .* Build the model as it was"):
        nncfx.load(tmp_path / "small", other)
    assert torch.equal(other(inputs), before(inputs))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**40, 2**40]},
        {"shape": "48"},
        {"shape": [48, -8]},
        {"group": 0},
        {"group": 2**62},
        {"codes": "F7"},
        {"bits": "many"},
        {"bits": 99},
        {"codebook": "secret"},
        {"dtype": None},
    ],
)
def test_damaged_records_are_refused(change: dict[str, Any]) -> None:
    small = quantize_weights(network(), example_inputs=torch.randn(4, 8), bits=8, pack=True)
    records = json.loads(json.dumps(packed_records(small)))
    records["0"] |= change
    with pytest.raises(StorageError):
        packed_again(network(), records, {})


def conv1_d() -> nn.Module:
    """Called as a layer of transformers is, and another."""
    return Function(lambda m, x: x @ m.weight.T, weight=nn.Parameter(torch.randn(6, 8)))


def test_a_class_of_a_known_name_is_not_taken_for_the_known_one(tmp_path: Path) -> None:
    inputs = torch.randn(4, 8)
    model = nn.Sequential(conv1_d(), nn.Linear(6, 3)).eval()
    small = quantize_weights(model, example_inputs=inputs, bits=8, pack=True)
    simulated = quantize_weights(model, example_inputs=inputs, bits=8)
    torch.testing.assert_close(small(inputs), simulated(inputs))
    nncfx.save(tmp_path / "small", small)
    fresh = nn.Sequential(conv1_d(), nn.Linear(6, 3)).eval()
    assert torch.equal(nncfx.load(tmp_path / "small", fresh)[1](inputs), small(inputs))


def test_a_packed_model_is_exported_as_one_with_quantizers_is(tmp_path: Path) -> None:
    inputs = torch.randn(4, 8)
    files = [
        nncfx.export_onnx(
            quantize_weights(network(), example_inputs=inputs, bits=8, pack=pack),
            tmp_path / f"{pack}.onnx",
            inputs,
        ).path.read_bytes()
        for pack in (False, True)
    ]
    assert files[0] == files[1]


class Listed(nn.Module):
    """Calls its layers from a plain list."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steps = [nn.Linear(32, 32) for _ in range(2)]
        self.one, self.two = self.steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = step(x).relu()
        return x


def test_layers_that_a_list_holds_are_those_of_codes(tmp_path: Path, save: Save) -> None:
    x, model = torch.randn(4, 32), Listed().eval()
    small = quantize_weights(model, example_inputs=x, bits=4, pack=True)
    assert [name for name, _ in small.named_parameters()] == ["one.scale", "two.scale"]
    assert small.steps[0] is small.one
    assert small.steps[1] is small.two
    save(tmp_path / "small", small)
    fresh = Listed().eval()
    for one in fresh.parameters():
        one.data.zero_()
    _, again = nncfx.load(tmp_path / "small", fresh)
    assert torch.equal(again(x), small(x))
    assert (small(x) - model(x)).norm() < 0.2 * model(x).norm()
    unpacked = unpack_weights(small, x)
    assert torch.equal(unpacked(x), quantize_weights(model, example_inputs=x, bits=4)(x))


# its table of tokens, which is its head as well, is scaled where it is looked up
gemma3 = partial(
    language_model, "gemma3_text", num_attention_heads=2, num_key_value_heads=1, head_dim=32
)


# it counts positions in its table of them
opt = partial(language_model, "opt", ffn_dim=96, word_embed_proj_dim=64)


@pytest.mark.parametrize("make", [gemma3, opt])
def test_tables_with_a_forward_of_their_own_keep_it(
    tmp_path: Path, save: Save, make: Callable[[], nn.Module]
) -> None:
    rounded = quantize_weights(make(), example_inputs=TOKENS, bits=8)
    small = quantize_weights(make(), example_inputs=TOKENS, bits=8, pack=True)
    assert torch.allclose(logits(small), logits(rounded), atol=1e-5)
    save(tmp_path / "small", small)
    _, again = nncfx.load(tmp_path / "small", make)
    assert torch.equal(logits(again), logits(small))


def test_what_of_gemma_stays_as_it_is_is_told(caplog: pytest.LogCaptureFixture) -> None:
    _warn_unscaled.cache_clear()  # it speaks once
    settings = WeightSettings(weights="int8", group_size=32, method="round", scales="awq")
    small = quantize_blocks(gemma3(), [{"input_ids": TOKENS}], settings, rest="int8")
    assert caplog.text.count("No layer of Gemma3DecoderLayer takes scales of 'awq'") == 1
    assert "Tables stay in float: 'model.embed_tokens'" in caplog.text
    assert (logits(small) - logits(gemma3())).norm() < 0.05 * logits(gemma3()).norm()
