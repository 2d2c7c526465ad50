"""Checkpoints that are pruned from shards to shards are what the model in memory becomes."""

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn

from language_models import language_model
from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, StorageError
from nncfx.quantization.blocks.block_engine import WeightSettings
from nncfx.quantization.checkpoints.checkpoint_folder import Shards
from nncfx.quantization.checkpoints.quantize_checkpoint import quantize_checkpoint
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import thin
from nncfx.thinning.files.prune_checkpoint import prune_checkpoint


def llama(**changes: object) -> nn.Module:
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 4}
    return language_model(**sizes | changes)


def sentence() -> dict[str, Tensor]:
    return {"input_ids": torch.arange(12)[None]}


def saved(model: nn.Module, folder: Path) -> Path:
    model.save_pretrained(folder, max_shard_size="60KB")
    return folder


def thinned(model: nn.Module, level: float) -> nn.Module:
    """Return the model that pruning and thinning in memory leave."""
    channels = analyze_channels(model, sentence())
    weights = dict(model.named_parameters())
    scores = group_scores(channels, weights, normalize=False)
    keep = [keep_groups([one], level, scope="local")[0] for one in scores]
    zero_groups(channels, keep, weights)
    return thin(model, sentence(), channels=channels).model


@pytest.mark.parametrize("tied", [False, True])
def test_shards_hold_what_pruning_and_thinning_in_memory_leave(tied: bool, tmp_path: Path) -> None:
    model = llama(tie_word_embeddings=tied)
    target = prune_checkpoint(saved(model, tmp_path / "float"), tmp_path / "thin", 0.5, align=16)
    expected = thinned(model, 0.5)  # 48 of 96 neurons and 2 of 4 groups of heads stay
    found = Shards(target)
    state = expected.state_dict()
    assert set(found.names) == set(state) - ({"lm_head.weight"} if tied else set())
    assert all(torch.equal(found.read(name), state[name]) for name in found.names)
    read = transformers.AutoModelForCausalLM.from_pretrained(target).eval()
    assert read.config.intermediate_size == 48
    assert (read.config.num_attention_heads, read.config.num_key_value_heads) == (4, 2)
    with torch.no_grad():
        torch.testing.assert_close(read(**sentence()).logits, expected(**sentence()).logits)


def test_a_pruned_checkpoint_is_quantized_from_shards_to_shards(tmp_path: Path) -> None:
    thin_one = prune_checkpoint(
        saved(llama(), tmp_path / "float"), tmp_path / "thin", 0.5, align=32
    )
    settings = WeightSettings(group_size=32)
    target = quantize_checkpoint(thin_one, tmp_path / "int4", [sentence()], settings)
    packed = Shards(target).read("model.layers.0.mlp.up_proj.weight_packed")
    assert packed.shape == (64, 64 * 4 // 32)  # 64 of 96 neurons stay


def test_as_many_heads_stay_as_the_config_allows(tmp_path: Path) -> None:
    # of 8 heads a quarter would leave 6, and a width of 64 takes 1, 2, 4 or 8
    model = llama(num_key_value_heads=8)
    for level, heads in ((0.25, 8), (0.4, 8), (0.55, 4)):
        target = prune_checkpoint(
            saved(model, tmp_path / "float"), tmp_path / f"thin {level}", level
        )
        read = transformers.AutoModelForCausalLM.from_pretrained(target)
        assert (read.config.num_attention_heads, read.config.head_dim) == (heads, 8)
        assert read.config.intermediate_size == 96 - int(96 * level)


def small(family: str) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        vocab_size=90, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, pad_token_id=0,
    )  # fmt: skip
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model.eval()


def test_heads_go_where_the_config_says_their_width_only_by_that_of_the_model(
    tmp_path: Path,
) -> None:
    model = small("Qwen2")
    target = prune_checkpoint(saved(model, tmp_path / "float"), tmp_path / "thin", 0.5)
    read = transformers.AutoModelForCausalLM.from_pretrained(target).eval()
    assert (read.config.num_attention_heads, read.config.num_key_value_heads) == (4, 2)
    assert read.get_parameter("model.layers.0.self_attn.o_proj.weight").shape == (64, 4 * 8)
    channels, weights = analyze_channels(model, sentence()), dict(model.named_parameters())
    scores = group_scores(channels, weights, normalize=False)
    keep = [keep_groups([one], 0.5, scope="local")[0] for one in scores]
    zero_groups(channels, keep, weights)
    with torch.no_grad():
        torch.testing.assert_close(read(**sentence()).logits, model(**sentence()).logits)


def test_heads_of_models_without_a_width_of_heads_stay_and_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = prune_checkpoint(saved(small("StableLm"), tmp_path / "f"), tmp_path / "thin", 0.5)
    assert "4 of 4 heads of keys and values stay, not 2: a StableLmConfig has" in caplog.text
    read = transformers.AutoModelForCausalLM.from_pretrained(target)
    assert (read.config.num_attention_heads, read.config.intermediate_size) == (8, 64)


def test_a_run_goes_on_with_the_same_settings_and_model_alone(tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "float")
    prune_checkpoint(source, tmp_path / "thin", 0.5)
    with pytest.raises(StorageError, match=r"pruned was 0\.5 and is 0\.25"):
        prune_checkpoint(source, tmp_path / "thin", 0.25)
    tuned = llama()
    tuned.get_parameter("model.norm.weight").data *= 2
    with pytest.raises(StorageError, match="other settings: source was"):
        prune_checkpoint(saved(tuned, tmp_path / "tuned"), tmp_path / "thin", 0.5)


def test_a_model_whose_config_has_no_number_for_its_widths_is_refused(tmp_path: Path) -> None:
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=90)
    source = saved(transformers.GPT2LMHeadModel(config), tmp_path / "float")
    with pytest.raises(ArgumentError, match="have no number in the config of a GPT2Config"):
        prune_checkpoint(source, tmp_path / "thin", 0.5)


def test_a_model_whose_parameters_begin_with_ones_is_pruned(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.BambaConfig(
        vocab_size=90, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, attn_layer_indices=[1], mamba_n_heads=8,
        mamba_d_head=8, mamba_d_state=16, mamba_n_groups=1, mamba_chunk_size=8, pad_token_id=0,
    )  # fmt: skip
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    target = prune_checkpoint(saved(model, tmp_path / "float"), tmp_path / "thin", 0.5)
    read = transformers.AutoModelForCausalLM.from_pretrained(target).eval()
    assert read.config.intermediate_size == 32
    with torch.no_grad():
        torch.testing.assert_close(
            read(**sentence()).logits, thinned(model, 0.5)(**sentence()).logits
        )


def test_a_model_without_prunable_channels_is_refused(tmp_path: Path) -> None:
    config = transformers.Mamba2Config(
        vocab_size=90, hidden_size=32, num_hidden_layers=1, num_heads=8, head_dim=8, state_size=16,
        n_groups=1, chunk_size=8,
    )  # fmt: skip
    source = saved(transformers.AutoModelForCausalLM.from_config(config), tmp_path / "float")
    with pytest.raises(ArgumentError, match="Mamba2ForCausalLM has no neurons or heads that"):
        prune_checkpoint(source, tmp_path / "thin", 0.5)
    assert not (tmp_path / "thin").exists()
