"""Rotations that weights absorb."""

import copy
import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from language_models import language_model
from nncfx.errors import GraphError
from nncfx.quantization.grid.fake_quantize import fake_quantize, qparams_from_range
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.preparation.residual_stream import attention_pairs, residual_stream
from nncfx.quantization.preparation.rotation import random_rotation, rotate
from nncfx.tracing import trace

TOKENS = torch.randint(90, (3, 12), generator=torch.Generator().manual_seed(0))
BATCH = {"input_ids": TOKENS}


def made(kind: str, **changes: object) -> nn.Module:
    """Return a model whose norms' weights and biases are no ones and zeros."""
    sizes = {"hidden_size": 96, "intermediate_size": 112, "pad_token_id": 0}
    model = language_model(kind, **sizes | changes)
    with torch.no_grad():
        for one in model.parameters():
            if one.ndim == 1:
                one.normal_(1, 0.3)
    return model


def relative(found: Tensor, wanted: Tensor) -> float:
    return float(((found - wanted).norm() / wanted.norm()).detach())


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "phi3", "granite"])
def test_the_model_computes_what_it_did(kind: str) -> None:
    """Without biases of the stream, with them, norms of heads, windows, fused layers, and factors.

    Granite's embeddings and sums have factors (`residual_multiplier`), 1 by default.
    """
    factors = {"embedding_multiplier": 3.0, "residual_multiplier": 0.2}
    model = made(kind, **factors if kind == "granite" else {})
    before = copy.deepcopy(model.state_dict())
    turned = rotate(model, BATCH)
    other = {"input_ids": TOKENS.flip(1)[:2, :7]}
    assert relative(turned(**other).logits, model(**other).logits) < 1e-5
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    weight = "model.layers.0.mlp.down_proj.weight"
    assert relative(turned.state_dict()[weight], before[weight]) > 1
    assert (turned.model.norm.weight == 1).all()
    assert [type(one) for one in turned.modules()] == [type(one) for one in model.modules()]


def test_biases_of_writers_turn_with_them() -> None:
    model = made("llama", attention_bias=True, mlp_bias=True)
    assert relative(rotate(model, BATCH)(**BATCH).logits, model(**BATCH).logits) < 1e-5


def test_half_precision_is_rounded_once() -> None:
    """Eight binary digits: each of some ten matrices in a row is off by 2^-9 at random."""
    model = made("llama").bfloat16()
    found = rotate(model, BATCH)(**BATCH).logits
    assert found.dtype == torch.bfloat16
    assert relative(found.float(), model(**BATCH).logits.float()) < 0.05


def test_generation_with_a_cache_is_the_same() -> None:
    model = made("llama")
    options = {"max_new_tokens": 6, "do_sample": False, "eos_token_id": None}
    assert torch.equal(
        rotate(model, BATCH).generate(TOKENS, **options), model.generate(TOKENS, **options)
    )


def test_who_reads_and_who_writes_the_stream() -> None:
    model = made("llama", num_hidden_layers=1)
    graph = trace(model, BATCH)
    found = residual_stream(model, graph)
    block = "model.layers.0"
    norms = {
        **dict.fromkeys(
            (f"{block}.self_attn.{one}_proj" for one in "qkv"), f"{block}.input_layernorm.weight"
        ),
        **dict.fromkeys(
            (f"{block}.mlp.{one}_proj" for one in ("gate", "up")),
            f"{block}.post_attention_layernorm.weight",
        ),
        "lm_head": "model.norm.weight",
    }
    assert {layer.name: norm for layer, norm in found.readers} == norms
    assert [one.name for one in found.writers] == [
        f"{block}.self_attn.o_proj", f"{block}.mlp.down_proj",
    ]  # fmt: skip
    assert (found.width, found.embeddings) == (96, ["model.embed_tokens.weight"])
    ((values, reads, width),) = attention_pairs(model, graph)
    assert (values.name, reads.name) == (f"{block}.self_attn.v_proj", f"{block}.self_attn.o_proj")
    assert width == 24


def test_a_matrix_that_the_head_shares_is_given_to_both(caplog: pytest.LogCaptureFixture) -> None:
    model = made("llama", tie_word_embeddings=True)
    with caplog.at_level(logging.INFO, "nncfx"):
        turned = rotate(model, BATCH)
    assert relative(turned(**BATCH).logits, model(**BATCH).logits) < 1e-5
    assert turned.lm_head.weight is not turned.model.embed_tokens.weight
    assert not turned.config.tie_word_embeddings
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert "head has a matrix of its own" in caplog.text


@pytest.mark.parametrize("size", [1, 3, 24, 64, 96])
def test_rotations_are_orthogonal_and_spread_each_channel(size: int) -> None:
    turn = random_rotation(size, torch.Generator().manual_seed(0))
    torch.testing.assert_close(turn @ turn.T, torch.eye(size, dtype=torch.float64))
    power = size & -size
    assert (turn.abs().amax(1) <= power**-0.5 + 1e-12).all()
    other = random_rotation(size, torch.Generator().manual_seed(5))
    assert size == 1 or not torch.equal(turn, other)


def test_of_a_power_of_two_all_entries_have_one_magnitude() -> None:
    turn = random_rotation(64, torch.Generator().manual_seed(0))
    torch.testing.assert_close(turn.abs(), torch.full_like(turn, 1 / 8))


def test_an_outlier_channel_is_held_by_activations_of_four_bits() -> None:
    """One channel of 64 that is 50 times as large takes the grid of its token for itself."""
    model = made("llama", hidden_size=64)
    with torch.no_grad():
        model.model.embed_tokens.weight[:, 5] *= 50
        for layer in model.model.layers:
            for one in (layer.self_attn.o_proj, layer.mlp.down_proj):
                one.weight[5] *= 50
    exact, spec = model(**BATCH).logits, QuantizerSpec(bits=4, axis=0)

    def rounded(_: nn.Module, args: tuple[Tensor]) -> Tensor:
        rows = args[0].flatten(0, -2)
        grid = qparams_from_range(rows.amin(1), rows.amax(1), spec)
        return fake_quantize(rows, *grid, spec).view_as(args[0])

    errors = []
    for one in (copy.deepcopy(model), rotate(model, BATCH)):
        for layer in one.model.layers.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_pre_hook(rounded)
        errors.append(relative(one(**BATCH).logits, exact))
    assert errors[1] < errors[0]


class Decoder(nn.Module):
    """An embedding, one step, a norm and a head."""

    def __init__(self, step: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.step = nn.Embedding(20, 16), step
        self.norm, self.center = nn.RMSNorm(16), nn.LayerNorm(16)
        self.one, self.head = nn.Linear(16, 16), nn.Linear(16, 20)
        nn.init.normal_(self.norm.weight)

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.step(self, self.embedding(tokens))
        return y


WORDS = torch.arange(20).view(2, 10)


def test_torchs_own_norm_is_known() -> None:
    model = Decoder(lambda m, x: m.head(m.norm(x + m.one(m.norm(x)))))
    assert relative(rotate(model, WORDS)(WORDS), model(WORDS)) < 1e-5
    model.double()
    assert relative(rotate(model, WORDS)(WORDS), model(WORDS)) < 1e-13


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda m, x: m.head(m.center(x)), "layer_norm.*subtracts the mean"),
        (lambda m, x: m.head(F.relu(x)), "relu.*not an RMS norm"),
        (lambda m, x: m.head(x + F.relu(m.one(x))), "__add__"),
        (lambda m, x: m.head(x + m.one(x) * m.norm.weight), "__add__"),
        (lambda m, x: m.head(x + m.one(x).flip(-1)), "__add__"),
        (lambda m, x: m.head(x[..., list(range(15, -1, -1))]), "returns something else"),
        (lambda m, x: m.head(x * m.norm.weight.exp()), "__mul__"),
        (lambda m, x: m.norm(x), "returns what"),
        (lambda m, x: m.head(m.norm(x.flip(-1))), "flip"),
        (
            lambda m, x: m.one(m.one(m.norm(x))),
            "not an RMS norm, a sum or a linear layer with a weight",
        ),
        (lambda m, x: m.head(x) + x.tolist()[0][0][0], "returns something else"),
    ],
)
def test_what_does_not_commute_is_refused(
    step: Callable[[nn.Module, Tensor], Tensor], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        rotate(Decoder(step), WORDS)


@pytest.mark.parametrize("kind", ["gemma", "olmo2", "cohere"])
def test_other_norms_are_refused(kind: str) -> None:
    """Of Gemma, 1 + weight; of OLMo 2, behind layers; of Cohere, with a mean taken away."""
    with pytest.raises(GraphError, match=r"not an RMS norm, a sum or a linear.*without rotation"):
        rotate(made(kind), BATCH)


def test_gpt2_is_refused_for_its_layer_norms() -> None:
    with pytest.raises(GraphError, match=r"layer_norm_0.*subtracts the mean.*without rotation"):
        rotate(language_model("gpt2"), BATCH)
