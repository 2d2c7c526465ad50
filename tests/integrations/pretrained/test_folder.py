"""Folders of compressed transformers give the same logits, by nncfx or by transformers alone."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import SafetensorError
from torch import nn

import nncfx
from language_models import language_model
from nncfx.errors import ArgumentError, StorageError
from nncfx.integrations.pretrained import from_pretrained, save_pretrained
from nncfx.quantization.weight_only import quantize_weights
from nncfx.thinning import thin
from nncfx.thinning.thin import _warn_of_config as warn_of_config

IDS = {"input_ids": torch.tensor([[5, 9, 11, 3], [7, 8, 1, 2]])}


llama = partial(language_model, hidden_size=32, intermediate_size=64, num_key_value_heads=4)


def without_neurons(*kept: int) -> nn.Module:
    """Return a model whose layers have lost all neurons but so many."""
    model = llama()
    for layer, count in zip(model.model.layers, kept, strict=True):
        layer.mlp.down_proj.weight.data[:, count:] = 0
    return thin(model, IDS).model


def assert_same(model: nn.Module, again: nn.Module) -> None:
    assert type(again).__name__.endswith("LlamaForCausalLM")
    with torch.no_grad():
        assert torch.equal(again(**IDS).logits, model(**IDS).logits)


def test_even_widths_go_into_the_config(tmp_path: Path) -> None:
    model = without_neurons(40, 40)
    assert save_pretrained(model, tmp_path).name == "model.safetensors"
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["intermediate_size"] == 40
    assert_same(model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path))
    assert_same(model, from_pretrained(tmp_path))


def test_that_its_own_config_no_longer_fits_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_config.cache_clear()
    without_neurons(40, 40).save_pretrained(tmp_path)
    (told,) = [one for one in caplog.messages if "The config of a thinned" in one]
    assert "nncfx.integrations.pretrained.save_pretrained" in told
    caplog.clear()
    without_neurons(40, 40)
    assert not caplog.messages
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path)


def test_even_heads_go_into_the_config(tmp_path: Path) -> None:
    dense = llama()
    for layer in dense.model.layers:
        layer.self_attn.o_proj.weight.data[:, 8:] = 0  # all heads but the first
    model = thin(dense, IDS).model
    save_pretrained(model, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["num_attention_heads"] == 1
    assert config["head_dim"] == 8
    assert_same(model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path))


def test_uneven_widths_go_beside_the_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = without_neurons(40, 24)
    caplog.clear()
    assert save_pretrained(model, tmp_path).name == "nncfx.safetensors"
    assert "No config of LlamaForCausalLM has the widths that are left" in caplog.text
    assert json.loads((tmp_path / "config.json").read_text())["intermediate_size"] == 64
    again = from_pretrained(tmp_path)
    assert again.model.layers[1].mlp.down_proj.in_features == 24
    assert_same(model, again)


def test_a_model_of_images_is_compared_on_inputs_that_are_passed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dense = transformers.SiglipVisionModel(
        transformers.SiglipVisionConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, image_size=16, patch_size=8,
        )
    ).eval()  # fmt: skip
    for name, weight in dense.named_parameters():
        if name.endswith("fc2.weight"):
            weight.data[:, 24:] = 0
    images = {"pixel_values": torch.randn(1, 3, 16, 16)}
    model = thin(dense, images).model
    caplog.clear()
    assert save_pretrained(model, tmp_path).name == "nncfx.safetensors"
    assert "does not run on example_inputs" in caplog.text
    assert save_pretrained(model, tmp_path, example_inputs=images).name == "model.safetensors"
    assert json.loads((tmp_path / "config.json").read_text())["intermediate_size"] == 24


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_and_thinned(bits: int, tmp_path: Path) -> None:
    save_pretrained(without_neurons(40, 40), tmp_path)
    model = quantize_weights(without_neurons(64, 32), example_inputs=IDS, bits=bits)
    save_pretrained(model, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()  # of the earlier save
    again = from_pretrained(tmp_path)
    assert_same(model, again)
    assert len(again.nncf.hooks) == len(model.nncf.hooks) > 10
    tokens = again.generate(**IDS, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert (
        tokens.tolist()
        == model.generate(**IDS, max_new_tokens=3, do_sample=False, pad_token_id=0).tolist()
    )


def test_masks_are_baked_in(tmp_path: Path) -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    _, model = nncfx.create_compressed_model(llama(), config, IDS)
    save_pretrained(model, tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert_same(model, again)
    weight = again.model.layers[0].mlp.up_proj.weight
    assert 0.3 < (weight == 0).float().mean() < 0.7


@pytest.mark.parametrize("kept", [(40, 40), (40, 24)])
def test_a_failed_save_leaves_the_folder_before_or_none(
    kept: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = without_neurons(24, 24)
    save_pretrained(before, tmp_path)
    model = without_neurons(*kept)

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.serialize_file", full)
    for folder in (tmp_path, tmp_path / "one" / "two"):
        with pytest.raises(StorageError, match="No space left on device"):
            save_pretrained(model, folder)
    assert not (tmp_path / "one").exists()
    assert_same(before, from_pretrained(tmp_path))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Linear, not a model of transformers"):
        save_pretrained(nn.Linear(2, 2), tmp_path)
    with pytest.raises(StorageError, match=r"holds no config\.json"):
        from_pretrained(tmp_path)
    save_pretrained(without_neurons(40, 24), tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace("LlamaForCausalLM", "LLamaForCausalLM"))
    with pytest.raises(StorageError, match="Did you mean 'LlamaForCausalLM'"):
        from_pretrained(tmp_path)
    assert_same(without_neurons(40, 24), from_pretrained(tmp_path, transformers.LlamaForCausalLM))
