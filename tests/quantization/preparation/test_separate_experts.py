"""Experts as linear layers: the same model, which block engines take whole."""

import copy
import logging
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn

import nncfx
from language_models import language_model, token_batches
from nncfx.quantization.blocks import block_layers
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.blocks.block_layers import LayerGroup
from nncfx.quantization.blocks.one_shot_pruning import PruningSettings, prune_blocks
from nncfx.quantization.packing.layers import PackedLinear
from nncfx.quantization.preparation.separate_experts import separate_experts
from onnx_files import run_file

SMALL = {"hidden_size": 32, "intermediate_size": 48, "experts_implementation": "eager"}
SIZES: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "qwen3_moe": {"moe_intermediate_size": 16, "head_dim": 8},
    # gate and up rows in turns, matrices transposed, biases, an activation of its own
    "gpt_oss": {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
}


def made(kind: str = "qwen3_moe") -> nn.Module:
    model = language_model(kind, **SMALL, **SIZES[kind])
    for name, one in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(one)
    return model


batches = partial(token_batches, rows=2, tokens=16)


@pytest.mark.parametrize("kind", SIZES)
def test_the_model_computes_the_same_and_takes_no_more_memory(kind: str) -> None:
    model = made(kind)
    expected = model(**batches()[0]).logits
    count = sum(one.numel() for one in model.parameters())
    held = {one.untyped_storage().data_ptr() for one in model.parameters()}
    assert separate_experts(model) is model
    torch.testing.assert_close(model(**batches()[0]).logits, expected, rtol=1e-5, atol=1e-5)
    assert sum(one.numel() for one in model.parameters()) == count
    assert {one.untyped_storage().data_ptr() for one in model.parameters()} == held
    for one in model.model.layers:
        for expert in range(4):
            assert type(one.mlp.experts.get_submodule(f"{expert}.down_proj")) is nn.Linear


class UngatedExperts(nn.Module):
    """As transformers writes them for Nemotron-H: two layers each, and no gate."""

    has_gate = has_bias = has_post_expert_norm = is_transposed = False
    is_concatenated = True

    def __init__(self) -> None:
        super().__init__()
        self.up_proj = nn.Parameter(torch.randn(3, 6, 4))
        self.down_proj = nn.Parameter(torch.randn(3, 4, 6))
        self.act_fn = nn.GELU()


def test_experts_without_a_gate() -> None:
    own = UngatedExperts()
    up, down = own.up_proj.detach(), own.down_proj.detach()
    model = separate_experts(nn.Sequential(own))
    x, chosen = torch.randn(5, 4), torch.tensor([[0], [2], [2], [1], [3]])
    found = model[0](x, chosen, torch.full((5, 1), 0.5))
    for row, number in enumerate([0, 2, 2, 1]):
        expected = 0.5 * down[number] @ nn.functional.gelu(up[number] @ x[row])
        torch.testing.assert_close(found[row], expected)
    assert not found[4].any()  # there is no fourth expert


def test_experts_with_norms_are_left_and_told(caplog: pytest.LogCaptureFixture) -> None:
    own = UngatedExperts()
    own.has_post_expert_norm = True
    with caplog.at_level(logging.WARNING):
        assert separate_experts(nn.Sequential(own))[0] is own
    assert "leaves '0' in one parameter: a norm follows each expert" in caplog.text


@pytest.mark.parametrize("method", ["gptq", "round"])
def test_each_layer_of_each_expert_holds_codes_and_is_loaded(
    method: Literal["gptq", "round"], tmp_path: Path
) -> None:
    settings = WeightSettings(weights="int4", group_size=16, method=method)
    model = quantize_blocks(separate_experts(made()), batches(), settings)
    packed = [name for name, one in model.named_modules() if isinstance(one, PackedLinear)]
    assert len([name for name in packed if ".experts." in name]) == 2 * 4 * 3
    assert not [name for name in packed if name.endswith("mlp.gate")]
    # the router chooses as it did
    router = model.model.layers[0].mlp.gate.weight
    assert torch.equal(router, made().model.layers[0].mlp.gate.weight)
    path = nncfx.save(tmp_path / "m", model)
    _, again = nncfx.load(path, separate_experts(made()))
    x = batches()[0]
    assert torch.equal(again(**x).logits, model(**x).logits)


def test_all_experts_go_in_one_run_of_the_block_and_come_out_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = WeightSettings(weights="int4", group_size=16)
    waves: list[int] = []
    real = block_layers.BlockLayers.waves

    def counted(self: block_layers.BlockLayers, **which: bool) -> list[tuple[LayerGroup, ...]]:
        found = list(real(self, **which))
        waves.append(len(found))
        return found

    monkeypatch.setattr(block_layers.BlockLayers, "waves", counted)
    together = quantize_blocks(separate_experts(made()), batches(), settings)
    # q, k and v; o; the first layers of all experts; the last ones
    assert waves == [4, 4]

    def single(self: block_layers.BlockLayers, **_: bool) -> list[tuple[LayerGroup, ...]]:
        return [(one,) for one in self.groups]

    monkeypatch.setattr(block_layers.BlockLayers, "waves", single)
    alone = quantize_blocks(separate_experts(made()), batches(), settings)
    found = dict(alone.named_modules())
    for name, one in together.named_modules():
        if isinstance(one, PackedLinear):
            assert torch.equal(one.weight, found[name].weight), name


def deserted() -> nn.Module:
    """Return a mixture whose router tells no experts apart: all tokens go to the last two."""
    model = made("mixtral")
    for layer in model.model.layers:
        layer.mlp.gate.weight.data.zero_()
    return model


def test_an_expert_without_tokens_is_told_and_rounded_to_nearest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = deserted()
    nearest = WeightSettings(weights="int4", group_size=16, method="round")
    settings = WeightSettings(weights="int4", group_size=16)
    with caplog.at_level(logging.WARNING):
        found = quantize_blocks(separate_experts(copy.deepcopy(model)), batches(), settings)
    told = "6 layers of MixtralDecoderLayer read nothing but zeros, or nothing"
    assert caplog.text.count(told) == len(model.model.layers)
    expected = quantize_blocks(separate_experts(model), batches(), nearest)
    same = [
        torch.equal(
            found.get_submodule(f"model.layers.0.mlp.experts.{number}.down_proj").weight,
            expected.get_submodule(f"model.layers.0.mlp.experts.{number}.down_proj").weight,
        )
        for number in range(4)
    ]
    assert same == [True, True, False, False]


@pytest.mark.parametrize("method", ["wanda", "sparsegpt"])
def test_an_expert_without_tokens_is_pruned_by_magnitude(
    method: Literal["wanda", "sparsegpt"], caplog: pytest.LogCaptureFixture
) -> None:
    settings = PruningSettings(pattern=(2, 4), method=method)
    with caplog.at_level(logging.WARNING):
        found = prune_blocks(separate_experts(deserted()), batches(), settings)
    assert "and are pruned by magnitude" in caplog.text
    name = "model.layers.0.mlp.experts.0.down_proj.weight"
    before = separate_experts(deserted()).get_parameter(name).detach()
    ranks = before.abs().unflatten(1, (-1, 4)).argsort(2).argsort(2).flatten(1)
    torch.testing.assert_close(found.get_parameter(name).detach(), before * (ranks > 1))


def test_experts_are_pruned_as_other_layers() -> None:
    model = prune_blocks(separate_experts(made()), batches(), PruningSettings(pattern=(2, 4)))
    for name, one in model.named_parameters():
        if ".experts." in name:
            assert ((one == 0).unflatten(1, (-1, 4)).sum(2) == 2).all(), name


@pytest.mark.slow
def test_a_file_computes_each_token_by_the_experts_that_it_chooses(tmp_path: Path) -> None:
    settings = WeightSettings(weights="int4", group_size=16)
    model = quantize_blocks(separate_experts(made()), batches(), settings)
    path = nncfx.export_onnx(model, tmp_path / "m.onnx", batches()[0]).path
    other = {"input_ids": torch.randint(90, (3, 16), generator=torch.Generator().manual_seed(5))}
    (found,) = run_file(path, (other["input_ids"],))
    expected = model(**other).logits.detach()
    error = (torch.from_numpy(found) - expected).norm() / expected.norm()
    assert error < 0.02  # MatMulNBits rounds what it reads to 8 bits
