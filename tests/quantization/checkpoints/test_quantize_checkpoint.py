"""Checkpoints from shards to shards."""

import json
from pathlib import Path
from typing import Literal

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from language_models import language_model, token_batches
from nncfx.errors import ArgumentError, StorageError
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.blocks.weight_formats import WeightFormat
from nncfx.quantization.checkpoints import quantize_checkpoint as module
from nncfx.quantization.checkpoints.quantize_checkpoint import quantize_checkpoint
from nncfx.quantization.packing.layers import PackedLinear
from nncfx.quantization.packing.layouts import LAYOUTS
from nncfx.quantization.preparation.separate_experts import separate_experts
from nncfx.thinning.files.prune_checkpoint import prune_checkpoint


def llama(dtype: torch.dtype = torch.float32, **changes: object) -> nn.Module:
    # not .to(dtype), which would round the rotary frequencies, too
    return language_model(**{"num_hidden_layers": 3, "dtype": dtype, **changes})


def saved(model: nn.Module, folder: Path, shard: str = "60KB") -> Path:
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def tensors(folder: Path) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found |= load_file(file)
    return found


def words(packed: Tensor, bits: int, axis: int) -> Tensor:
    """Read words of 32 bits as the documents of both formats describe them, one by one."""
    rows = packed.movedim(axis, -1)
    found = []
    for row in rows.tolist():
        codes = []
        for word in row:
            unsigned = word % 2**32
            codes += [unsigned // 2 ** (bits * n) % 2**bits for n in range(32 // bits)]
        found.append(codes)
    return torch.tensor(found).movedim(-1, axis)


def assert_read_alike(folder: Path, packed: nn.Module, **options: object) -> None:
    """Check that transformers reads a model with the logits of the one quantized in memory."""
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, **options).eval()
    with torch.no_grad():
        found, expected = (one(**token_batches()[0]).logits for one in (read, packed))
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-4)


SETTINGS = WeightSettings(weights="uint4", group_size=32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights", ["int4", "uint4", "int8"])
def test_gptq_files_hold_the_weights_of_the_model_that_is_quantized_in_memory(
    weights: WeightFormat, dtype: torch.dtype, tmp_path: Path
) -> None:
    model = llama(dtype)
    settings = WeightSettings(weights=weights, group_size=32, half_scales=True)
    source = saved(model, tmp_path / "float")
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings, layout="gptq")
    packed = quantize_blocks(model, token_batches(), settings)
    held, bits = tensors(target), 8 if weights == "int8" else 4
    for name, layer in packed.named_modules():
        if not isinstance(layer, PackedLinear):
            continue
        codes = words(held[f"{name}.qweight"], bits, 0)
        zeros = words(held[f"{name}.qzeros"], bits, 1) + 1
        groups = held[f"{name}.g_idx"].long()
        scales = held[f"{name}.scales"]
        assert scales.dtype == torch.float16
        weight = (codes - zeros[groups]) * scales[groups].float()
        assert torch.equal(weight.T.to(dtype), layer.weight), name
    assert torch.equal(held["lm_head.weight"], model.lm_head.weight)
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert (config["quant_method"], config["bits"], config["group_size"]) == ("gptq", bits, 32)


@pytest.mark.filterwarnings("ignore:You passed `quantization_config`:UserWarning")
@pytest.mark.parametrize(
    ("weights", "group"),
    [("int8", None), ("int4", 32), ("uint4", 32), ("float8_e4m3", None), ("mxfp4", None)],
)
def test_transformers_reads_compressed_tensors_and_gives_the_same_logits(
    weights: WeightFormat, group: int | None, tmp_path: Path
) -> None:
    pytest.importorskip("compressed_tensors")
    model = llama()
    settings = WeightSettings(weights=weights, group_size=group)
    target = quantize_checkpoint(
        saved(model, tmp_path / "f"), tmp_path / "q", token_batches(), settings
    )
    options = {}
    if weights in {"uint4", "mxfp4"}:
        # else version 0.20 has no place for packed zero points, and makes bfloat16 of MXFP4
        options["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    assert_read_alike(target, quantize_blocks(model, token_batches(), settings), **options)


def test_linear_layers_of_a_class_of_their_own_are_quantized(tmp_path: Path) -> None:
    model, settings = language_model("falcon"), WeightSettings(group_size=32)
    target = quantize_checkpoint(
        saved(model, tmp_path / "f"), tmp_path / "q", token_batches(), settings
    )
    packed = quantize_blocks(model, token_batches(), settings)
    layers = {name: one for name, one in packed.named_modules() if isinstance(one, PackedLinear)}
    assert len(layers) == 2 * 4
    written = tensors(target)
    # transformers 5.24 reads no quantized Falcon: it initializes weights that codes replace
    for name, one in layers.items():
        parts = {key: written[f"{name}.{key}"] for key in ("weight_packed", "weight_scale")}
        read = LAYOUTS["compressed-tensors"].read(parts, one.shape, torch.float32)
        assert torch.equal(read.dequantize(), one.weight)


@pytest.mark.parametrize("layout", ["compressed-tensors", "gptq"])
def test_a_model_of_which_nothing_is_quantized_is_refused(
    layout: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = saved(language_model("falcon"), tmp_path / "float")
    of_their_own = type(language_model("falcon").transformer.h[0].mlp.dense_h_to_4h)
    monkeypatch.setattr(of_their_own, "forward", lambda self, x: 2 * (x @ self.weight.T))
    with pytest.raises(
        ArgumentError, match="No layer in any block of FalconForCausalLM was quant"
    ):
        quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS, layout=layout)


def test_rows_that_the_group_does_not_divide_are_read_with_the_groups_that_they_have(
    tmp_path: Path,
) -> None:
    pytest.importorskip("compressed_tensors")
    # 64 divides 128, and of 96 only 32
    model = llama(hidden_size=96, intermediate_size=128, head_dim=24)
    source = saved(model, tmp_path / "float")
    settings = WeightSettings(group_size=64)
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings)
    config = (target / "config.json").read_text()
    groups = json.loads(config)["quantization_config"]["config_groups"].values()
    sizes = {one["weights"]["group_size"]: one["targets"] for one in groups}
    assert sizes[64] == [f"model.layers.{number}.mlp.down_proj" for number in range(3)]
    assert {32, 64} == sizes.keys()
    assert len(sizes[32]) == 3 * 6
    assert_read_alike(target, quantize_blocks(model, token_batches(), settings))
    # and when all blocks are read back
    quantize_checkpoint(source, target, token_batches(), settings)
    assert (target / "config.json").read_text() == config
    with pytest.raises(ArgumentError, match=r"down_proj' has groups of 64, .*has one group_size"):
        quantize_checkpoint(source, tmp_path / "gptq", token_batches(), settings, layout="gptq")


def test_gptq_says_the_one_size_that_the_groups_have(tmp_path: Path) -> None:
    source = saved(llama(hidden_size=96, head_dim=24), tmp_path / "float")
    settings = WeightSettings(group_size=64)
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings, layout="gptq")
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["group_size"] == 32


def test_linear_layers_of_blocks_that_stay_in_float_are_told(tmp_path: Path) -> None:
    pytest.importorskip("compressed_tensors")
    model = language_model("bart", decoder_layers=2, decoder_ffn_dim=96)
    settings = WeightSettings(group_size=32)
    target = quantize_checkpoint(
        saved(model, tmp_path / "f"), tmp_path / "q", token_batches(), settings
    )
    told = json.loads((target / "config.json").read_text())["quantization_config"]["ignore"]
    # a decoder alone never runs its attention to an encoder
    cross = [one for one, _ in model.named_modules() if ".encoder_attn." in one]
    assert sorted(told) == sorted([*cross, "lm_head"])
    assert_read_alike(target, quantize_blocks(model, token_batches(), settings))


def test_a_run_that_is_killed_at_any_block_goes_on_and_ends_with_the_same_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = saved(llama(), tmp_path / "float")
    whole = quantize_checkpoint(source, tmp_path / "whole", token_batches(), SETTINGS)
    done: list[str] = []
    real = module.quantize_block

    def killed(block: nn.Module, *rest: object) -> object:
        done.append("block")
        if len(done) in {1, 3, 5}:
            raise KeyboardInterrupt
        return real(block, *rest)

    monkeypatch.setattr(module, "quantize_block", killed)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            quantize_checkpoint(source, tmp_path / "killed", token_batches(), SETTINGS)
        assert not (tmp_path / "killed" / "model.safetensors.index.json").exists()
    found = quantize_checkpoint(source, tmp_path / "killed", token_batches(), SETTINGS)
    assert len(done) == 3 + 3  # each block once, and the three that were killed
    names = sorted(one.name for one in whole.iterdir())
    assert names == sorted(one.name for one in found.iterdir())
    expected = tensors(whole)
    assert all(torch.equal(one, expected.pop(name)) for name, one in tensors(found).items())
    assert not expected


def test_no_more_than_one_block_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = llama(num_hidden_layers=4)
    source = saved(model, tmp_path / "float", "1GB")
    loaded: list[int] = []
    seen: list[nn.Module] = []
    real_model, real = module.empty_model, module.quantize_block

    def empty(folder: Path) -> nn.Module:
        made = real_model(folder)
        seen.append(made)
        assert all(one.is_meta for one in made.parameters() if one.ndim > 1)
        return made

    def counted(block: nn.Module, *rest: object) -> object:
        layers = seen[0].model.layers
        present = [one for one in layers.parameters() if not one.is_meta and one.ndim > 1]
        loaded.append(sum(one.numel() for one in present))
        return real(block, *rest)

    monkeypatch.setattr(module, "empty_model", empty)
    monkeypatch.setattr(module, "quantize_block", counted)
    quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)
    first = model.model.layers[0]
    one = sum(each.numel() for each in first.parameters() if each.ndim > 1)
    assert loaded == [one] * 4


def test_bytes_a_parameter_of_the_blocks(tmp_path: Path) -> None:
    model = llama(hidden_size=128, intermediate_size=256)
    target = quantize_checkpoint(
        saved(model, tmp_path / "f"), tmp_path / "q", token_batches(), SETTINGS
    )
    held = tensors(target)
    size = sum(one.nbytes for name, one in held.items() if ".layers." in name)
    assert size <= 0.66 * sum(one.numel() for one in model.model.layers.parameters())


def test_tied_models_and_models_of_one_file_are_read(tmp_path: Path) -> None:
    source = saved(llama(tie_word_embeddings=True), tmp_path / "float", "1GB")
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)
    assert "lm_head.weight" not in tensors(target)


@pytest.mark.skipif(not hasattr(transformers, "Gemma4TextConfig"), reason="it is newer")
def test_buffers_are_read_and_written(tmp_path: Path) -> None:
    model = language_model(
        "gemma4_text", head_dim=32, global_head_dim=32, pad_token_id=0,
        layer_types=["sliding_attention", "full_attention"], hidden_size_per_layer_input=0,
    )  # fmt: skip
    for layer in model.model.layers:
        layer.layer_scalar.fill_(0.25)
    source = saved(model, tmp_path / "float")
    held = tensors(quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS))
    assert held["model.layers.0.layer_scalar"].tolist() == [0.25]
    packed = quantize_blocks(model, token_batches(), SETTINGS)
    for name, layer in packed.named_modules():
        if isinstance(layer, PackedLinear):
            codes = words(held[f"{name}.weight_packed"], 4, 1)
            assert torch.equal(codes, layer.integers().values.long()), name


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"intermediate_size": 192}, r"is \[96, 64\] in '.*', and \[192, 64\] by"),
        (
            {"architectures": ["MyModel"], "model_type": "vit"},
            "cannot make the model of '.*', of the class 'MyMod",
        ),
    ],
)
def test_a_config_of_another_model_is_refused(
    changes: dict[str, object], said: str, tmp_path: Path
) -> None:
    source = saved(llama(), tmp_path / "float")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(StorageError, match=said):
        quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)
    assert not (tmp_path / "q").exists()


DEEPSEEK = {
    "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "v_head_dim": 16,
    "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
}  # fmt: skip
"""What its configs have beside those of others, which do not look at it."""


def mixture(kind: str) -> nn.Module:
    """Return one whose files have other names than it has: experts one by one, or w1 to w3."""
    sizes = {"num_key_value_heads": 4, "moe_intermediate_size": 32, **DEEPSEEK}
    return language_model(kind, **sizes)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe", "olmoe", "deepseek_v3"])
def test_experts_are_quantized_one_by_one_and_transformers_reads_them(
    kind: str, tmp_path: Path
) -> None:
    pytest.importorskip("compressed_tensors")
    source = saved(mixture(kind), tmp_path / "float")
    settings = WeightSettings(group_size=16)
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings)
    held, before = tensors(target), tensors(source)
    experts = [name for name in before if ".experts." in name]
    assert len(experts) >= 4 * 3
    assert {f"{name}_packed" for name in experts} <= set(held)
    packed = quantize_blocks(separate_experts(mixture(kind)), token_batches(), settings)
    read = transformers.AutoModelForCausalLM.from_pretrained(target).eval()
    with torch.no_grad():
        found, expected = (one(**token_batches()[0]).logits for one in (read, packed))
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-4)
    # what is left to do after a kill starts from the experts as they were rounded
    (target / "model.safetensors.index.json").unlink()
    (target / "model-model.layers.1.safetensors").unlink()
    quantize_checkpoint(source, target, token_batches(), settings)
    assert all(torch.equal(one, held.pop(name)) for name, one in tensors(target).items())
    assert not held


def test_a_model_of_another_kind_is_made_by_the_class_that_its_config_names(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=90, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    batch = {"input_ids": torch.randint(90, (2, 12)), "decoder_input_ids": torch.ones(2, 5).long()}
    source = saved(model, tmp_path / "float")
    settings = WeightSettings(group_size=32)
    target = quantize_checkpoint(source, tmp_path / "q", [batch], settings, blocks="decoder.block")
    packed = quantize_blocks(model, [batch], settings, blocks="decoder.block")
    held = tensors(target)
    for name, layer in packed.named_modules():
        if isinstance(layer, PackedLinear):
            codes = words(held[f"{name}.weight_packed"], 4, 1) - 8
            assert torch.equal(codes, layer.integers().values.long())


def test_the_config_has_the_names_of_memory_too(tmp_path: Path) -> None:
    # the head is `embed_out` in files
    pytest.importorskip("compressed_tensors")
    source = saved(mixture("gpt_neox"), tmp_path / "float")
    settings = WeightSettings(group_size=32)
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings)
    config = json.loads((target / "config.json").read_text())["quantization_config"]
    assert config["ignore"] == ["embed_out", "lm_head"]
    assert_read_alike(target, quantize_blocks(mixture("gpt_neox"), token_batches(), settings))


def test_a_model_whose_file_has_other_names_is_told_of_the_way(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4}
    source = saved(language_model("gpt_oss", rope_parameters=rope), tmp_path / "float")
    with pytest.raises(StorageError, match=r"other names than in memory, load the model"):
        quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)


def test_shards_of_other_settings_are_not_gone_on_with(tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "float")
    quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)
    with pytest.raises(StorageError, match=r"weights was uint4 and is int4 .*write into an empty"):
        quantize_checkpoint(source, tmp_path / "q", token_batches(), WeightSettings(group_size=32))
    with pytest.raises(StorageError, match=r"other settings: batches was"):
        quantize_checkpoint(source, tmp_path / "q", token_batches()[1:], SETTINGS)


@pytest.mark.parametrize(
    ("layout", "weights", "group"),
    [
        *(("gptq", one, 32) for one in ("int8", "int4", "uint4")),
        *(("compressed-tensors", one, 32) for one in ("int8", "int4", "uint4")),
        *(("compressed-tensors", one, None) for one in ("float8_e4m3", "mxfp4")),
    ],
)
def test_blocks_on_disk_have_the_grid_that_they_had(
    layout: Literal["gptq", "compressed-tensors"],
    weights: WeightFormat,
    group: int | None,
    tmp_path: Path,
) -> None:
    source = saved(llama(num_hidden_layers=2), tmp_path / "float")
    settings = WeightSettings(weights=weights, group_size=group, method="round")
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), settings, layout=layout)
    config, whole = (target / "config.json").read_text(), tensors(target)
    (target / "model-model.layers.1.safetensors").unlink()
    for _ in ("behind the first block", "behind all"):
        quantize_checkpoint(source, target, token_batches(), settings, layout=layout)
        assert (target / "config.json").read_text() == config
        assert all(torch.equal(one, whole[name]) for name, one in tensors(target).items())


@pytest.mark.parametrize(
    ("layout", "weights", "message"),
    [
        ("gtpq", "int4", "no layout 'gtpq'. Did you mean 'gptq'"),
        ("compressed-tensors", "nf4", "has no weights of the format 'nf4'"),
        ("gptq", "mxfp4", "has no weights of the format 'mxfp4'"),
    ],
)
def test_what_a_layout_cannot_hold_is_refused(
    layout: str, weights: str, message: str, tmp_path: Path
) -> None:
    group = None if weights == "mxfp4" else 32
    settings = WeightSettings(weights=weights, group_size=group)  # type: ignore[arg-type]  # so it is tried
    with pytest.raises(ArgumentError, match=message):
        quantize_checkpoint(tmp_path, tmp_path / "q", token_batches(), settings, layout=layout)


def test_folders_of_quantized_models_are_refused(tmp_path: Path) -> None:
    source = saved(llama(), tmp_path / "float")
    target = quantize_checkpoint(source, tmp_path / "q", token_batches(), SETTINGS)
    with pytest.raises(StorageError, match=r"holds a quantized model \(compressed-tensors\)"):
        quantize_checkpoint(target, tmp_path / "again", token_batches(), SETTINGS)
    # codes whose config does not say so
    for dtype, told in ((torch.int8, "I8"), (torch.float8_e4m3fn, "F8_E4M3")):
        for file in source.glob("*.safetensors"):
            made = {name: one.to(dtype) for name, one in load_file(file).items()}
            save_file(made, file, metadata={"format": "pt"})
        with pytest.raises(StorageError, match=f"codes of the type {told} .*Pass the folder"):
            quantize_checkpoint(source, tmp_path / "codes", token_batches(), SETTINGS)
        with pytest.raises(StorageError, match=f"holds codes of the type {told}"):
            prune_checkpoint(source, tmp_path / "pruned", 0.5)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    llama().config.save_pretrained(tmp_path)
    with pytest.raises(StorageError, match=r"has neither model\.safetensors\.index\.json nor"):
        quantize_checkpoint(tmp_path, tmp_path / "q", token_batches(), SETTINGS)


@pytest.mark.parametrize(
    "config",
    [None, "{", "[]", '{"model_type": "lama"}', '{"model_type": "llama", "vocab_size": "a"}'],
)
def test_a_missing_or_damaged_config_is_told(config: str | None, tmp_path: Path) -> None:
    place = saved(llama(num_hidden_layers=1), tmp_path / "float") / "config.json"
    place.unlink() if config is None else place.write_text(config)
    with pytest.raises(StorageError, match=r"transformers cannot read '.*/config.json' \(\w+"):
        quantize_checkpoint(place.parent, tmp_path / "q", token_batches(), SETTINGS)


@pytest.mark.parametrize("layout", ["gptq", "compressed-tensors"])
def test_hqq_needs_no_batches(layout: str, tmp_path: Path) -> None:
    """The zero points are whole numbers, as both layouts hold them."""
    model = llama()
    settings = WeightSettings(weights="uint4", group_size=32, method="hqq", half_scales=True)
    source = saved(model, tmp_path / "float")
    target = quantize_checkpoint(source, tmp_path / "q", (), settings, layout=layout)
    packed = quantize_blocks(model, (), settings)
    held = tensors(target)
    part = "qweight" if layout == "gptq" else "weight_packed"
    for name, layer in packed.named_modules():
        if isinstance(layer, PackedLinear):
            codes = words(held[f"{name}.{part}"], 4, 0 if layout == "gptq" else 1)
            values = layer.integers().values.long()
            assert torch.equal(codes.T if layout == "gptq" else codes, values)
