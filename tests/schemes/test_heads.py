"""HeadPrune removes whole heads, which thinning then takes out exactly."""

import copy

import pytest
import torch
from torch import nn

from language_models import bert, language_model
from nncfx.channels import analyze_channels
from nncfx.errors import CompressionError
from nncfx.schemes import HeadPrune
from nncfx.thinning import thin

TOKENS = torch.arange(12).view(2, 6)


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()


def test_the_weakest_heads_go_on_both_sides() -> None:
    model, x = encoder(), torch.randn(2, 5, 16)
    attention = model.get_submodule("self_attn")
    with torch.no_grad():
        for part in range(3):
            # head 2 is rows 8 to 11 of queries, keys and values
            attention.in_proj_weight[16 * part + 8 : 16 * part + 12] *= 1e-3
    scheme = HeadPrune().bind(analyze_channels(model, x))
    before = copy.deepcopy(model)
    scheme.compress(model, 0.25)
    assert not attention.in_proj_weight.view(3, 4, 4, 16)[:, 2].any()
    assert not attention.out_proj.weight[:, 8:12].any()
    assert attention.in_proj_weight.view(3, 4, 4, 16)[:, [0, 1, 3]].all()
    # the feed-forward layers are no heads
    assert torch.equal(
        model.get_parameter("linear1.weight"), before.get_parameter("linear1.weight")
    )


@pytest.mark.parametrize(
    "model",
    [bert(num_attention_heads=4), language_model("gpt2", hidden_size=16).transformer],
    ids=["bert", "gpt2"],
)
def test_half_the_heads_of_a_transformer_are_thinned_away(model: nn.Module) -> None:
    scheme = HeadPrune("l1norm").bind(analyze_channels(model, TOKENS))
    scheme.compress(model, 0.5)
    masked = model(TOKENS).last_hidden_state
    result = thin(model, TOKENS)
    smaller = result.model(TOKENS).last_hidden_state
    torch.testing.assert_close(smaller, masked, rtol=1e-4, atol=1e-5)
    before = sum(p.numel() for p in model.parameters())
    # 4 of 8 heads, each of 4 x (4 x 16) weights, biases aside
    assert before - sum(p.numel() for p in result.model.parameters()) >= 4 * 4 * 4 * 16


def test_unbound_it_says_how_to_bind_it() -> None:
    with pytest.raises(CompressionError, match=r"HeadPrune\(\)\.bind"):
        HeadPrune().compress(encoder(), 0.5)
    with pytest.raises(CompressionError, match=r"HeadPrune\(\)\.bind"):
        HeadPrune().parameters(encoder())


def test_a_network_without_heads_is_refused() -> None:
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Flatten(),
        nn.Linear(64, 8),
        nn.Linear(8, 2),
    )
    scheme = HeadPrune().bind(analyze_channels(model, torch.randn(1, 2, 8, 8)))
    with pytest.raises(CompressionError, match="HeadPrune finds no channels"):
        scheme.compress(model, 0.5)
