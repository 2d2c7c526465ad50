"""Promises of tracing on the meta device."""

import pytest
import torch

from nncfx.network import wrap


def test_a_wide_language_model_is_wrapped_without_its_weights() -> None:
    transformers = pytest.importorskip("transformers")
    # two of Llama 3's layers, with all its widths; the full 32 take no more memory, only longer
    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=2,
        num_attention_heads=32,
        num_key_value_heads=8,
    )
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config).eval()
        ids = torch.ones(1, 8, dtype=torch.long)
    graph = wrap(model, {"input_ids": ids}).nncf.graph
    assert all(parameter.is_meta for parameter in model.parameters())
    # query, key, value, output, gate, up and down of each layer, and the head
    assert len(graph.select(["{function}linear"])) == 2 * 7 + 1
    assert graph.outputs[0].shape == (1, 8, 128256)
