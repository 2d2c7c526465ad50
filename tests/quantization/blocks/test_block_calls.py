"""Where the blocks of a model are, and what they are called with."""

import logging

import pytest
import torch
from torch import nn

from nncfx.quantization.blocks.block_engine import WeightSettings, quantize_blocks

transformers = pytest.importorskip("transformers")


def bart() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BartConfig(
        vocab_size=90, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64,
        max_position_embeddings=40,
    )  # fmt: skip
    return transformers.BartForConditionalGeneration(config).eval()


def test_a_second_list_of_blocks_is_told_and_another_call_takes_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, settings = bart(), WeightSettings(group_size=32)
    batch = {"input_ids": torch.randint(90, (4, 12)), "decoder_input_ids": torch.ones(4, 6).long()}
    with caplog.at_level(logging.WARNING):
        half = quantize_blocks(model, [batch], settings)
    # two blocks of q, k, v, out and two of 32 x 64, of all that the tables and a decoder hold
    own = 2 * (4 * 32 * 32 + 2 * 32 * 64)
    total = own + 2 * (8 * 32 * 32 + 2 * 32 * 64) + 90 * 32 + 2 * 42 * 32
    told = f"not 'model.encoder.layers' ({100 * own / total:.1f} % of the weights)"
    assert told in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        whole = quantize_blocks(half, [batch], settings, blocks="model.encoder.layers")
    assert "several lists" not in caplog.text
    linear = [name for name, one in whole.named_modules() if isinstance(one, nn.Linear)]
    assert linear == ["lm_head"]
