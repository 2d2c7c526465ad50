"""Where the blocks of a model are, and what they are called with."""

import logging

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import override

from language_models import language_model
from nncfx.errors import ArgumentError
from nncfx.quantization.blocks.block_calls import advanced, block_calls, find_blocks
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


def test_a_batch_that_the_model_fails_on_is_named() -> None:
    good = {"input_ids": torch.zeros(1, 4).long()}
    beyond = {"input_ids": torch.full((1, 4), 95)}
    with pytest.raises(ArgumentError, match=r"fails on batch 1 .*input_ids=int64\[1, 4\]: Index"):
        block_calls(bart(), ("model.decoder.layers.0", "model.decoder.layers.1"), [good, beyond])


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    @override
    def forward(self, hidden_states: Tensor, bias: Tensor | None = None) -> list[object]:
        made = torch.ones(8) if bias is None else bias
        return [(self.layer(hidden_states) + made, "state"), made]


class Narrow(Wide):
    """Another class of block, with a list of its own in it."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)])


class Chain(nn.Module):
    """Its blocks return a list of a pair and of what the first of them makes for all."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    @override
    def forward(self, x: Tensor) -> Tensor:
        bias = None
        for one in self.blocks:
            (x, state), bias = one(x, bias=bias)
            assert state == "state"
        return x


def test_the_first_block_shows_what_blocks_return() -> None:
    """Each gets what the first one made; run one by one they compute what the model does."""
    torch.manual_seed(0)
    model, x = Chain(Wide(), Narrow(), Wide(), Narrow()), torch.randn(3, 8)
    names = find_blocks(model)
    assert names == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    calls = block_calls(model, names, [x])
    assert [one.kwargs["bias"] is None for (one,) in calls] == [True, False, False, False]
    present = calls[0]
    for name, following in zip(names, [*calls[1:], calls[-1]], strict=True):
        present = advanced(model.get_submodule(name), present, following)
    with torch.no_grad():
        assert torch.equal(present[0].hidden, model(x))


def test_why_blocks_do_not_follow_one_another_is_told() -> None:
    class Halves(Wide):
        @override
        def forward(self, hidden_states: Tensor, bias: Tensor | None = None) -> list[object]:
            raise ValueError("an odd number of tokens")

    model = Chain(Halves(), Halves())
    with pytest.raises(ArgumentError, match=r"fails on batch 0 .*ValueError: an odd number"):
        block_calls(model, find_blocks(model), [torch.randn(3, 8)])
    model.blocks = nn.ModuleList([Wide()] * 2)
    with pytest.raises(ArgumentError, match=r"they run in another order.*Write blocks="):
        block_calls(model, ("blocks.0", "blocks.1"), [torch.randn(3, 8)])
    model.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
    with pytest.raises(ArgumentError, match=r"fails on batch 0 .*TypeError: .*bias"):
        block_calls(model, ("blocks.0", "blocks.1"), [torch.randn(3, 8)])


def test_blocks_of_rwkv_are_compressed() -> None:
    """They return their state and attentions beside what they pass on."""
    model = language_model("rwkv", hidden_size=32, intermediate_size=None)
    batch = {"input_ids": torch.randint(90, (2, 10))}
    small = quantize_blocks(model, [batch], WeightSettings(weights="int8", group_size=32))
    linear = [name for name, one in small.named_modules() if isinstance(one, nn.Linear)]
    assert linear == ["head"]
    with torch.no_grad():
        torch.testing.assert_close(
            small(**batch).logits, model(**batch).logits, atol=0.05, rtol=0.05
        )


def test_a_state_that_blocks_move_on_is_the_same_in_each_run() -> None:
    model = language_model("rwkv", hidden_size=32, intermediate_size=48)
    nn.init.normal_(model.rwkv.blocks[0].attention.time_mix_key)
    batch = {"input_ids": torch.randint(90, (2, 8))}
    hidden: list[Tensor] = []
    model.rwkv.blocks[1].register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
    with torch.no_grad():
        model(**batch)
    ((call,), (following,)) = block_calls(model, find_blocks(model), [batch])
    first = model.rwkv.blocks[0]
    for _ in range(2):
        (found,) = advanced(first, [call], [following])
        torch.testing.assert_close(found.hidden, hidden[0])
