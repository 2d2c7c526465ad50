"""Language models, block by block."""

import copy
import dataclasses
import logging
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from language_models import language_model, token_batches
from nncfx.errors import ArgumentError, CompressionError
from nncfx.quantization.blocks.block_calls import advanced, block_calls, find_blocks
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_block, quantize_blocks
from nncfx.quantization.blocks.weight_formats import WeightFormat
from nncfx.quantization.packing.layers import PackedEmbedding, PackedLinear
from small_models import Function


def error(model: nn.Module, exact: nn.Module) -> float:
    with torch.no_grad():
        found, wanted = (one(**token_batches()[0]).logits for one in (model, exact))
    return float((found - wanted).square().mean() / wanted.square().mean())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_gptq_in_the_order_of_the_blocks_is_nearer_than_rounding(kind: str) -> None:
    model = language_model(kind)
    before = copy.deepcopy(model.state_dict())
    errors = {
        method: error(
            quantize_blocks(
                model,
                token_batches(),
                WeightSettings(weights="uint4", group_size=32, method=method),
            ),
            model,
        )
        for method in ("gptq", "round")
    }
    assert errors["gptq"] < errors["round"] * 0.8
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


@pytest.mark.parametrize(
    ("weights", "group", "most"),
    [
        ("int8", None, 0.002),
        ("int4", 32, 0.3),
        ("nf4", 32, 0.3),
        ("mxfp4", None, 0.4),
        ("float8_e4m3", None, 0.02),
    ],
)
def test_every_format_is_held_as_codes(
    weights: WeightFormat, group: int | None, most: float
) -> None:
    model = language_model()
    settings = WeightSettings(weights=weights, group_size=group)
    packed = quantize_blocks(model, token_batches(), settings, rest=weights)
    assert not [one for one in packed.modules() if type(one) in {nn.Linear, nn.Embedding}]
    assert error(packed, model) < most


def test_each_block_is_calibrated_on_what_the_quantized_ones_before_return() -> None:
    """Quantized alone, on these inputs, the second block comes out the same."""
    settings = WeightSettings(group_size=32)
    packed = quantize_blocks(language_model(), token_batches(), settings)
    by_hand = language_model()
    names = find_blocks(by_hand)
    calls = block_calls(by_hand, names, token_batches())
    first = packed.get_submodule(names[0])
    second = by_hand.get_submodule(names[1])
    found = quantize_block(
        second, advanced(first, calls[0], calls[1]), [None] * len(calls[1]), settings
    )
    for name, stored in found.items():
        layer = packed.get_submodule(f"{names[1]}.{name}")
        assert isinstance(layer, PackedLinear)
        same = (layer.integers().values == stored.values).float().mean()
        assert same > 0.98, name  # sums of the codes' products in another order
    own = quantize_block(language_model().get_submodule(names[1]), calls[1], [None] * 4, settings)
    differs = [not torch.equal(own[name].values, one.values) for name, one in found.items()]
    assert all(differs)


def test_padding_does_not_count() -> None:
    """Whatever stands behind the end of a text, the codes are the same."""
    settings = WeightSettings(group_size=32)
    found = []
    for token in (5, 60):
        given = token_batches(2)
        for one in given:
            one["input_ids"][:, 20:] = token
            one["attention_mask"] = torch.ones(4, 30, dtype=torch.long)
            one["attention_mask"][:, 20:] = 0
        packed = quantize_blocks(language_model(), given, settings)
        found.append(packed.model.layers[1].mlp.down_proj.codes)
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_hqq_needs_no_data_and_runs_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = language_model(kind)
    settings = WeightSettings(weights="uint4", group_size=32, method="hqq")
    with monkeypatch.context() as patch:
        patch.setattr(type(model), "forward", None)
        packed = quantize_blocks(model, (), settings)
    assert error(packed, model) < 0.2
    block = packed.get_submodule(find_blocks(model)[0])
    assert not [one for one in block.modules() if type(one) is nn.Linear]
    rounded = quantize_blocks(
        model, token_batches(1), dataclasses.replace(settings, method="round")
    )
    count = [
        sum(isinstance(one, PackedLinear) for one in each.modules()) for each in (packed, rounded)
    ]
    assert count[0] == count[1]


def test_hqq_leaves_sparser_errors_than_rounding() -> None:
    model = language_model()
    settings = WeightSettings(weights="uint4", group_size=32, method="hqq")
    found = [
        quantize_blocks(model, token_batches(1), dataclasses.replace(settings, **changes))
        for changes in ({}, {"method": "round"})
    ]
    name = "model.layers.0.mlp.down_proj"
    weight = model.get_submodule(name).weight
    norms = [
        (each.get_submodule(name).integers().dequantize() - weight).abs().pow(0.7).sum()
        for each in found
    ]
    assert norms[0] < 0.99 * norms[1]


def test_hqq_takes_the_scales_of_awq() -> None:
    model = language_model()
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[::7] = 20.0
    settings = WeightSettings(weights="uint4", group_size=32, method="hqq")
    plain, scaled = (
        error(
            quantize_blocks(model, token_batches(), dataclasses.replace(settings, scales=one)),
            model,
        )
        for one in (None, "awq")
    )
    assert scaled < plain


def test_hqq_refuses_weights_that_are_not_finite() -> None:
    model = language_model()
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[0, 0] = torch.nan
    with pytest.raises(CompressionError, match=r"weight of 'mlp\.up_proj' is NaN"):
        quantize_blocks(model, (), WeightSettings(group_size=32, method="hqq"))


def test_the_rest_is_rounded_where_it_is_asked_for() -> None:
    packed = quantize_blocks(
        language_model("qwen2"), token_batches(1), WeightSettings(group_size=32), rest="int8"
    )
    assert isinstance(packed.model.embed_tokens, PackedEmbedding)
    assert isinstance(packed.lm_head, PackedLinear)
    assert (packed.lm_head.bits, packed.model.layers[0].mlp.up_proj.bits) == (8, 4)
    plain = quantize_blocks(
        language_model("qwen2"), token_batches(1), WeightSettings(group_size=32)
    )
    assert type(plain.lm_head) is nn.Linear


def test_in_place_no_copy_is_made() -> None:
    model = language_model()
    assert quantize_blocks(model, token_batches(1), inplace=True) is model


def test_a_packed_block_keeps_no_float_weights_while_the_next_one_is_rounded() -> None:
    model = language_model()
    first, second = model.model.layers[0].mlp, model.model.layers[1].mlp
    weight, lives = weakref.ref(first.up_proj.weight), []
    second.register_forward_hook(lambda *_: lives.append(weight() is not None))
    quantize_blocks(model, token_batches(1), WeightSettings(group_size=32), inplace=True)
    assert set(lives) == {False}


def test_matrices_that_stay_in_float_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def twice() -> nn.Module:
        return Function(
            lambda m, x: m.again(m.again(m.one(x))), one=nn.Linear(32, 32), again=nn.Linear(32, 32)
        )

    steps = nn.ModuleList([twice(), twice()])
    chain = Function(lambda m, x: m.steps[1](m.steps[0](x)), steps=steps)
    with caplog.at_level(logging.WARNING):
        packed = quantize_blocks(chain, [torch.randn(64, 32)], WeightSettings(group_size=32))
    told = "1 matrices of Function, 50.0 % of its weights, stay in float: 'again.weight'"
    assert told in caplog.text
    assert isinstance(packed.steps[1].one, PackedLinear)


def test_experts_are_told_without_data_too(caplog: pytest.LogCaptureFixture) -> None:
    """Four experts of 3 x 96 x 64 and a router; taken is attention, 64 x (64 + 32 + 32 + 64)."""
    model = language_model("mixtral")
    left = 4 * 3 * 96 * 64 + 4 * 64
    with caplog.at_level(logging.WARNING):
        quantize_blocks(model, (), WeightSettings(group_size=32, method="hqq"))
    share = 100 * left / (left + 64 * 192)
    assert f"3 matrices of MixtralDecoderLayer, {share:.1f} % of its weights, stay" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int5"}, "no weight format 'int5'.* Known are int8"),
        ({"method": "gtpq"}, "no method 'gtpq'. Did you mean 'gptq'"),
        ({"scales": "aqw"}, "no scales 'aqw'"),
        ({"group_size": 0}, "group_size is 0"),
        ({"weights": "mxfp4", "group_size": 64}, "'mxfp4' has groups of 32. Write None"),
        ({"weights": "mxfp4", "group_size": None, "method": "hqq"}, "are powers of two"),
    ],
)
def test_what_is_not_admissible_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        WeightSettings(**options)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"has no nn\.ModuleList of blocks"):
        quantize_blocks(nn.Linear(4, 4), [torch.ones(1, 4)])


def test_no_batches_are_refused() -> None:
    with pytest.raises(ArgumentError, match="no batches to calibrate with"):
        quantize_blocks(language_model(), [])


def test_rounding_makes_no_inverse_and_refuses_what_is_not_finite(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, given = language_model(), token_batches()
    monkeypatch.setattr("nncfx.quantization.blocks.block_engine.curvature", None)
    settings = WeightSettings(group_size=32, method="round")
    quantize_blocks(model, given, settings)
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[0] = torch.nan
    with pytest.raises(CompressionError, match="not finite"):
        quantize_blocks(model, given, settings)
