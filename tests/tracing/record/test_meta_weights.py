"""Promises of weights on "meta": what a model computes of its inputs has values all the same."""

from typing import Any

import pytest
import torch
from torch import nn

from nncfx.channels import analyze_channels
from nncfx.errors import TracingError
from nncfx.network import wrap
from nncfx.tracing.record.meta_weights import zeros, zeros_for_meta

WIDTHS = {"num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 50, "hidden_size": 16}
KINDS: dict[str, tuple[str, dict[str, int]]] = {
    "Llama": ("Llama", {**WIDTHS, "intermediate_size": 24, "num_key_value_heads": 2}),
    "Qwen2": ("Qwen2", {**WIDTHS, "intermediate_size": 24, "num_key_value_heads": 2}),
    "GPT2": ("GPT2", {"n_embd": 16, "n_layer": 1, "n_head": 4, "vocab_size": 50}),
}


def language_model(kind: str) -> nn.Module:
    transformers: Any = pytest.importorskip("transformers")
    name, widths = KINDS[kind]
    special = {"bos_token_id": 1, "eos_token_id": 2}
    config = getattr(transformers, f"{name}Config")(**widths, **special)
    head = "LMHeadModel" if name == "GPT2" else "ForCausalLM"
    model: nn.Module = getattr(transformers, name + head)(config)
    return model.eval()


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_masked_sentence_is_traced_without_weights_as_with_them(kind: str, device: str) -> None:
    inputs = {
        "input_ids": torch.randint(50, (1, 6)),
        "attention_mask": torch.ones(1, 6, dtype=torch.long),
    }
    expected = wrap(language_model(kind), inputs)
    with torch.device("meta"):
        model = language_model(kind)
    found = wrap(model, {name: one.to(device) for name, one in inputs.items()})
    assert found.nncf.graph.addresses == expected.nncf.graph.addresses
    assert str(found.nncf.channels) == str(expected.nncf.channels)
    assert all(one.is_meta for one in model.parameters())


def test_shared_tensors_stay_shared_and_come_back_as_they_were() -> None:
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    before = model.state_dict(keep_vars=True)
    with zeros_for_meta(model.modules()):
        assert model[2].weight is model[0].weight
        assert not model[0].weight.any()
        assert model(torch.ones(2, 3)).shape == (2, 3)
    after = model.state_dict(keep_vars=True)
    assert all(after[name] is one for name, one in before.items())


def test_zeros_are_plain_tensors_of_any_type() -> None:
    made = zeros((2, 3), torch.bfloat16)
    assert torch.equal(made, torch.zeros(2, 3, dtype=torch.bfloat16))
    assert zeros((), torch.float32).shape == ()
    made.add_(1)


class Looks(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if (2 * self.weight).max() > 1 else x


def test_a_model_that_looks_at_its_weights_is_refused_without_them() -> None:
    with pytest.raises(TracingError, match="meta tensors"):
        wrap(Looks(3, 3, device="meta"), torch.ones(1, 3))


def test_channels_of_a_wrapped_model_are_found_on_its_own_weights() -> None:
    model = wrap(
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.ones(2, 3)
    )
    before = {name: one.clone() for name, one in model.state_dict().items()}
    assert str(model.nncf.channels) == str(analyze_channels(model, torch.ones(2, 3)))
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
