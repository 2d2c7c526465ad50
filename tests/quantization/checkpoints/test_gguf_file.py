"""Quantized checkpoints as GGUF files, read by transformers and gguf."""

import re
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from language_models import language_model, token_batches
from nncfx.errors import MissingExtraError, StorageError
from nncfx.quantization.blocks.block_engine import WeightSettings
from nncfx.quantization.checkpoints.checkpoint_folder import Shards
from nncfx.quantization.checkpoints.gguf_file import write_gguf
from nncfx.quantization.checkpoints.quantize_checkpoint import quantize_checkpoint
from nncfx.quantization.checkpoints.quantized_folder import QuantizedFolder

gguf = pytest.importorskip("gguf")

HEADS, KEYS, BLOCKS, EXPERTS = 4, 2, 2, 4
KINDS = gguf.GGMLQuantizationType
INT4 = WeightSettings(weights="int4", group_size=32, half_scales=True)


def model(kind: str = "llama", seed: int = 0) -> nn.Module:
    made = language_model(kind, seed=seed, vocab_size=96)
    with torch.no_grad():
        for name, one in made.named_parameters():
            if "norm" in name:
                one.copy_(torch.rand(one.shape) + 0.5)
    return made


def turned(name: str, values: Tensor) -> Tensor:
    """Return rows as llama.cpp's converter has them: halves of heads of q and k in turns."""
    heads = {"q_proj": HEADS, "k_proj": KEYS}.get(name.split(".")[-2])
    if heads is None:
        return values
    return values.view(heads, 2, -1, values.shape[1]).transpose(1, 2).reshape(values.shape)


def as_stacks(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with the experts of a layer in one, as llama.cpp's converter writes them."""
    stacks: dict[str, dict[int, Tensor]] = {}
    found = {}
    for name, one in tensors.items():
        parts = re.match(r"(.*\.experts)\.(\d+)(\..*)", name)
        if parts is None:
            found[name] = one
        else:
            stacks.setdefault(parts[1] + parts[3], {})[int(parts[2])] = one
    for name, experts in stacks.items():
        found[name] = torch.stack([experts[number] for number in range(EXPERTS)])
    return found


def converted(source: Path, path: Path, kind: int = KINDS.F32, **left_out: bool) -> Path:
    """Write a folder as a float file, as `convert_hf_to_gguf.py` of llama.cpp does."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(32)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEYS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(96)
    writer.add_file_type(0)
    writer.add_token_list([f"<{number}>" for number in range(96)])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, BLOCKS)
    for name, one in as_stacks(load_file(source / "model.safetensors")).items():
        values = turned(name, one).numpy()
        own = KINDS.F32 if values.ndim == 1 else kind
        called = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if called not in left_out:
            writer.add_tensor(called, gguf.quantize(values, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantized(
    tmp_path: Path, settings: WeightSettings = INT4, kind: str = "llama"
) -> tuple[Path, Path]:
    """Return a float folder and the quantized one."""
    source = tmp_path / "float"
    model(kind).save_pretrained(source)
    return source, quantize_checkpoint(source, tmp_path / "q", token_batches(1), settings)


def numbers(source: Path, folder: Path) -> dict[str, Tensor]:
    """Return the weights of a quantized folder."""
    shards = Shards(source)
    own, found = QuantizedFolder(folder, shards), {}
    for name in shards.names:
        read = own.read(name, shards.read(name))
        found[name] = read if isinstance(read, Tensor) else read.dequantize()
    return found


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("scales", [None, "awq"])
def test_transformers_reads_the_weights_of_the_folder(
    kind: str, scales: Literal["awq"] | None, tmp_path: Path
) -> None:
    settings = WeightSettings(weights="int4", group_size=32, half_scales=True, scales=scales)
    source, folder = quantized(tmp_path, settings)
    like = converted(source, tmp_path / "float.gguf", KINDS[kind])
    saved = write_gguf(tmp_path / "int4.gguf", folder, source=source, like=like)
    assert saved.size_bytes == saved.path.stat().st_size
    read = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="int4.gguf", dtype=torch.float32
    )
    expected = numbers(source, folder)
    state = read.state_dict()
    assert expected.keys() <= state.keys()
    was = load_file(source / "model.safetensors")
    norms = [name for name in was if "input_layernorm" in name]
    assert all(torch.equal(expected[name], was[name]) == (scales is None) for name in norms)
    exact = [name for name in expected if "proj" in name or "norm" in name]
    assert len(exact) == 7 * BLOCKS + 2 * BLOCKS + 1
    for name in exact:
        assert torch.equal(state[name], expected[name]), name


def test_what_the_float_file_tells_is_told_again(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "float.gguf")
    saved = write_gguf(tmp_path / "int4.gguf", folder, source=source, like=like)
    before, after = gguf.GGUFReader(like), gguf.GGUFReader(saved.path)
    for name, field in before.fields.items():
        if not name.startswith(("GGUF.", "general.file_type")):
            assert after.get_field(name).contents() == field.contents(), name
    assert after.get_field("general.file_type").contents() == gguf.LlamaFileType.MOSTLY_Q4_0
    assert after.get_field("general.quantization_version").contents() == 2
    assert [one.name for one in after.tensors] == [one.name for one in before.tensors]
    kinds = {one.name: one.tensor_type for one in after.tensors}
    assert {kinds.pop(name) for name in list(kinds) if re.search("attn_.$|ffn_", name)} >= {
        KINDS.Q4_0
    }


def test_embeddings_and_heads_are_rounded_if_asked(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "float.gguf", KINDS.F16)
    saved = write_gguf(tmp_path / "q.gguf", folder, source=source, like=like, rest="int8")
    read = {one.name: one for one in gguf.GGUFReader(saved.path).tensors}
    was = load_file(source / "model.safetensors")
    for name, known in (("token_embd", "model.embed_tokens"), ("output", "lm_head")):
        found = read[f"{name}.weight"]
        assert found.tensor_type == KINDS.Q8_0
        half = was[f"{known}.weight"].half().float().numpy()
        assert np.array_equal(found.data, gguf.quantize(half, KINDS.Q8_0))
    assert read["output_norm.weight"].tensor_type == KINDS.F32


def test_experts_lie_in_one_tensor_in_their_order(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path, kind="mixtral")
    like = converted(source, tmp_path / "float.gguf")
    saved = write_gguf(tmp_path / "q.gguf", folder, source=source, like=like)
    read = {one.name: one for one in gguf.GGUFReader(saved.path).tensors}
    expected = numbers(source, folder)
    for block in range(BLOCKS):
        for own, part in (("gate", "w1"), ("up", "w3"), ("down", "w2")):
            found = read[f"blk.{block}.ffn_{own}_exps.weight"]
            values = torch.from_numpy(gguf.dequantize(found.data, found.tensor_type))
            prefix = f"model.layers.{block}.block_sparse_moe.experts"
            for expert in range(EXPERTS):
                assert torch.equal(values[expert], expected[f"{prefix}.{expert}.{part}.weight"])


def test_a_file_of_another_model_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    other = tmp_path / "other"
    model(seed=1).save_pretrained(other)
    like = converted(other, tmp_path / "float.gguf")
    with pytest.raises(StorageError, match=r"does not hold 'model.layers.0.*' of the source, row"):
        write_gguf(tmp_path / "q.gguf", folder, source=source, like=like)
    assert not (tmp_path / "q.gguf").exists()


def test_a_matrix_that_has_no_place_is_told(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "float.gguf", **{"blk.1.ffn_up.weight": True})
    with pytest.raises(StorageError, match=r"does not hold 'model.layers.1.mlp.up_proj.weight'"):
        write_gguf(tmp_path / "q.gguf", folder, source=source, like=like)


def test_a_file_that_is_quantized_already_is_refused(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "q8.gguf", KINDS.Q8_0)
    with pytest.raises(
        StorageError, match=r"is Q8_0 in the file given as 'like'. .*--outtype f16"
    ):
        write_gguf(tmp_path / "q.gguf", folder, source=source, like=like)


def test_folders_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "float.gguf")
    other = tmp_path / "other"
    model(seed=1).save_pretrained(other)
    with pytest.raises(StorageError, match=r"q' was not made from '.*other': checksums differ"):
        write_gguf(tmp_path / "q.gguf", folder, source=other, like=like)
    with pytest.raises(StorageError, match=r"is not a checkpoint that quantize_checkpoint wrote"):
        write_gguf(tmp_path / "q.gguf", source, source=source, like=like)


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such file" * 20])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    path = tmp_path / "float.gguf"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"float.gguf' is not a GGUF file, or is damaged"):
        write_gguf(tmp_path / "q.gguf", folder, source=source, like=path)


def test_a_text_that_is_no_utf8_is_a_storage_error(tmp_path: Path) -> None:
    source, folder = quantized(tmp_path)
    like = converted(source, tmp_path / "float.gguf")
    like.write_bytes(like.read_bytes().replace(b"<95>", b"<9\xff>", 1))
    with pytest.raises(StorageError, match=r"under 'tokenizer.ggml.tokens' that is not UTF-8"):
        write_gguf(tmp_path / "q.gguf", folder, source=source, like=like)


def test_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nncfx\[gguf\]'"):
        write_gguf(tmp_path / "q.gguf", tmp_path, source=tmp_path, like=tmp_path)
