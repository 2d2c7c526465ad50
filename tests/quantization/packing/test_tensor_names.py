"""Names of tensors in files are those that transformers writes."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from language_models import language_model
from nncfx.quantization.packing.tensor_names import file_names
from nncfx.quantization.preparation.separate_experts import separate_experts

transformers = pytest.importorskip("transformers")


def on_meta(kind: str, **settings: object) -> nn.Module:
    config = transformers.AutoConfig.for_model(kind, vocab_size=90, hidden_size=64, **settings)
    with torch.device("meta"):
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model


def test_they_are_those_of_the_file_and_belong_to_the_same_values(tmp_path: Path) -> None:
    model = language_model("mixtral")
    model.save_pretrained(tmp_path)
    names = file_names(model)
    state = separate_experts(model).state_dict()
    assert set(names) == set(state)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(names.values()) == set(file.keys())
        for name, one in state.items():
            assert torch.equal(file.get_tensor(names[name]), one), name


def test_tensors_that_files_hold_in_parts_have_no_name_there() -> None:
    model = on_meta("kimi_linear", num_experts=2, pad_token_id=0)
    names = file_names(model)
    joined = [name for name in model.state_dict() if name.endswith("self_attn.conv1d.weight")]
    assert joined
    assert not names.keys() & set(joined)
    assert names["model.embed_tokens.weight"] == "model.embed_tokens.weight"


def test_experts_that_files_hold_in_one_tensor_have_no_name_there() -> None:
    rope = {"rope_type": "default", "rope_theta": 1e4}
    model = on_meta("gpt_oss", num_hidden_layers=1, num_local_experts=2, rope_parameters=rope)
    assert not [
        name for name in file_names(model) if name.endswith("proj.weight") and "experts" in name
    ]
