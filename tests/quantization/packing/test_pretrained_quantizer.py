"""`save_pretrained` of models with layers of codes, read by transformers."""

import contextlib
import copy
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file

import nncfx
from language_models import language_model
from nncfx.errors import StorageError
from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks
from nncfx.quantization.blocks.weight_formats import WeightFormat
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.preparation.separate_experts import separate_experts

pytest.importorskip("compressed_tensors")

BATCH = {"input_ids": torch.randint(90, (4, 30), generator=torch.Generator().manual_seed(0))}
INT4 = WeightSettings(weights="int4", group_size=32)


def assert_read(saved: Any, folder: Path, **how: object) -> None:  # noqa: ANN401 (of transformers)
    saved.save_pretrained(folder)
    read = transformers.AutoModelForCausalLM.from_pretrained(folder, **how).eval()
    with torch.no_grad():
        found, expected = (one(**BATCH).logits for one in (read, saved))
    torch.testing.assert_close(found.float(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weights", ["int8", "int4", "uint4", "float8_e4m3", "mxfp4"])
def test_transformers_reads_what_it_wrote(weights: WeightFormat, tmp_path: Path) -> None:
    group = None if weights == "mxfp4" else 32
    small = quantize_blocks(
        language_model(), [BATCH], WeightSettings(weights=weights, group_size=group)
    )
    how = {}
    if weights in {"uint4", "mxfp4"}:  # all that it reads of these
        how["quantization_config"] = transformers.CompressedTensorsConfig(dequantize=True)
    with pytest.warns(UserWarning, match="already has") if how else contextlib.nullcontext():
        assert_read(small, tmp_path, **how)
    names = load_file(tmp_path / "model.safetensors")
    assert not [name for name in names if name.endswith((".codes", ".scale"))]
    # a float16 matrix has 2 bytes a weight; embeddings and the head are in float32
    least = 2 * 90 * 64 * 4
    assert (tmp_path / "model.safetensors").stat().st_size < least + 2 * 30_720 * 2


def test_the_float_model_stays_as_it_was(tmp_path: Path) -> None:
    plain = language_model()
    small = quantize_blocks(plain, [BATCH], INT4)
    small.save_pretrained(tmp_path / "q")
    assert not hasattr(plain.config, "quantization_config")
    assert_read(plain, tmp_path / "float")


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "load"])
def test_copies_are_written_alike(how: str, tmp_path: Path) -> None:
    small: Any = quantize_blocks(language_model(), [BATCH], INT4)
    if how == "deepcopy":
        small = copy.deepcopy(small)
    elif how == "pickle":
        small = pickle.loads(pickle.dumps(small))  # noqa: S301 (written above)
    else:
        _, small = nncfx.load(nncfx.save(tmp_path / "small.nncfx", small), language_model())
        small.eval()
    assert_read(small, tmp_path / "q")


def test_unpacked_again_it_is_written_in_float(tmp_path: Path) -> None:
    small = quantize_blocks(language_model(), [BATCH], INT4)
    small.save_pretrained(tmp_path / "q")
    assert_read(unpack_weights(small, BATCH), tmp_path / "float")
    assert "quantization_config" not in (tmp_path / "float" / "config.json").read_text()


@pytest.mark.parametrize("tied", [False, True])
def test_tables_are_written_in_float_and_that_is_told(
    tied: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = quantize_blocks(language_model(tie_word_embeddings=tied), [BATCH], INT4, rest="int8")
    with caplog.at_level(logging.WARNING, "nncfx"):
        assert_read(small, tmp_path)
    assert "writes 2 quantized weights as floats: 'model.embed_tokens', 'lm_head'." in caplog.text
    held = load_file(tmp_path / "model.safetensors")
    assert not [name for name in held if "embed" in name and name != "model.embed_tokens.weight"]


def test_layers_of_other_classes_keep_the_axes_of_their_weights(tmp_path: Path) -> None:
    small = nncfx.quantize_weights(
        language_model("gpt2"), example_inputs=BATCH, bits=4, group_size=32, pack=True
    )
    assert_read(small, tmp_path)


@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_separate_experts_have_the_names_of_files(kind: str, tmp_path: Path) -> None:
    assert_read(quantize_blocks(separate_experts(language_model(kind)), [BATCH], INT4), tmp_path)


@pytest.mark.parametrize("rest", [None, "int8"])
def test_names_of_the_config_are_those_in_memory_as_well(rest: Any, tmp_path: Path) -> None:  # noqa: ANN401 (a format)
    # the head is `embed_out` in files
    assert_read(quantize_blocks(language_model("gpt_neox"), [BATCH], INT4, rest=rest), tmp_path)


def test_other_grids_than_that_of_most_are_floats(tmp_path: Path) -> None:
    settings = WeightSettings(weights="uint4", group_size=32)
    small: Any = quantize_blocks(language_model(), [BATCH], settings, rest="int8")
    small.save_pretrained(tmp_path)
    assert "lm_head.weight" in load_file(tmp_path / "model.safetensors")
    how = transformers.CompressedTensorsConfig(dequantize=True)
    with pytest.warns(UserWarning, match="already has"):
        assert_read(small, tmp_path, quantization_config=how)


def test_experts_that_files_have_in_one_tensor_are_refused(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4}
    separate = separate_experts(language_model("gpt_oss", head_dim=16, rope_parameters=rope))
    small: Any = quantize_blocks(separate, [BATCH], INT4)
    with pytest.raises(StorageError, match="The files of this class have them in one tensor"):
        small.save_pretrained(tmp_path)


def test_a_model_whose_weights_are_all_packed_still_tells_its_dtype() -> None:
    plain = language_model("nanochat", max_position_embeddings=64)
    small: Any = quantize_blocks(plain, [BATCH], INT4, rest="int8")
    assert small.dtype == torch.float32
    found = small.generate(BATCH["input_ids"], max_new_tokens=2, do_sample=False, pad_token_id=0)
    assert found.shape == (4, 32)


def test_experts_in_one_parameter_are_refused_with_the_way(tmp_path: Path) -> None:
    small: Any = quantize_blocks(language_model("mixtral"), [BATCH], INT4)
    with pytest.raises(StorageError, match=r"experts 'model.layers.0.mlp.experts': .*Call sep"):
        small.save_pretrained(tmp_path)
