"""Attention without some heads is torch's attention with dead ones."""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from nncfx.quantization import quantize_weights
from nncfx.storage.models.narrow_attention import NarrowAttention, narrow_attention
from nncfx.thinning import ThinRecipe, rebuild, thin

Q = torch.linspace(-2, 1, 3 * 5 * 8, dtype=torch.float64).reshape(3, 5, 8).sin()
K = torch.linspace(1, 3, 3 * 4 * 8, dtype=torch.float64).reshape(3, 4, 8).cos()
BLIND = torch.tensor([[False, True, False, False]]).expand(5, 4)
PADDED = torch.tensor([[False, False, True, True]]).expand(3, 4)


def pair(**options: Any) -> tuple[nn.MultiheadAttention, nn.Module]:  # noqa: ANN401 (passed on)
    """Return torch's attention whose second of four heads is dead, and the one without it."""
    torch.manual_seed(0)
    dense = nn.MultiheadAttention(8, 4, **options).double().eval()
    dense.out_proj.weight.data[:, 2:4] = 0
    for bias in (dense.in_proj_bias, dense.out_proj.bias):
        if bias is not None:
            nn.init.uniform_(bias)
    narrow = copy.deepcopy(dense)
    rows = [row for row in range(24) if row % 8 not in {2, 3}]
    for name in ("in_proj_weight", "in_proj_bias"):
        if (tensor := getattr(dense, name)) is not None:
            setattr(narrow, name, nn.Parameter(tensor.data[rows]))
    for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
        if (tensor := getattr(dense, name)) is not None:
            setattr(narrow, name, nn.Parameter(tensor.data[rows[:6]]))
    narrow.out_proj.weight = nn.Parameter(dense.out_proj.weight.data[:, rows[:6]])
    narrow.out_proj.in_features, narrow.num_heads = 6, 3
    assert narrow_attention(narrow)
    return dense, narrow


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": 8, "vdim": 8}])
@pytest.mark.parametrize(
    "call",
    [
        {},
        {"attn_mask": BLIND},
        {"attn_mask": BLIND.double() * -1.5},
        {"key_padding_mask": PADDED},
        {"attn_mask": BLIND, "key_padding_mask": PADDED},
    ],
)
@pytest.mark.parametrize("need_weights", [False, True])
def test_the_result_is_that_with_a_dead_head(
    options: dict[str, Any], call: dict[str, Any], *, need_weights: bool
) -> None:
    dense, narrow = pair(batch_first=True, **options)
    results = [one(Q, K, K, need_weights=need_weights, **call)[0] for one in (dense, narrow)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_tokens_may_come_first() -> None:
    dense, narrow = pair()
    torch.testing.assert_close(dense(Q, Q, Q)[0], narrow(Q, Q, Q)[0], rtol=1e-12, atol=1e-12)


def test_one_sequence_needs_no_batch() -> None:
    dense, narrow = pair(batch_first=True)
    results = [one(Q[0], Q[0], Q[0]) for one in (dense, narrow)]
    assert results[1][0].shape == (5, 8)
    assert results[1][1].shape == (5, 5)
    torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-12, atol=1e-12)


def test_a_causal_hint_masks_later_tokens() -> None:
    dense, narrow = pair(batch_first=True)
    later = torch.ones(5, 5, dtype=torch.bool).triu(1)
    call: dict[str, Any] = {"attn_mask": later, "is_causal": True, "need_weights": False}
    results = [one(Q, Q, Q, **call)[0] for one in (dense, narrow)]
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_weights_of_single_heads_are_those_of_the_living() -> None:
    dense, narrow = pair(batch_first=True)
    every, living = (one(Q, Q, Q, average_attn_weights=False)[1] for one in (dense, narrow))
    torch.testing.assert_close(every[:, [0, 2, 3]], living, rtol=1e-12, atol=1e-12)


def test_a_mask_per_head_is_taken_by_living_heads() -> None:
    dense, narrow = pair(batch_first=True)
    masks = torch.linspace(-1, 1, 3 * 4 * 5 * 5, dtype=torch.float64).reshape(3, 4, 5, 5)
    expected = dense(Q, Q, Q, attn_mask=masks.flatten(0, 1))[0]
    actual = narrow(Q, Q, Q, attn_mask=masks[:, [0, 2, 3]].flatten(0, 1))[0]
    torch.testing.assert_close(expected, actual, rtol=1e-12, atol=1e-12)


def test_it_pickles_copies_and_has_the_state_of_torchs() -> None:
    dense, narrow = pair(batch_first=True)
    again = pickle.loads(pickle.dumps(copy.deepcopy(narrow)))  # noqa: S301 (our own bytes)
    assert torch.equal(again(Q, Q, Q)[0], narrow(Q, Q, Q)[0])
    assert narrow.state_dict().keys() == dense.state_dict().keys()


def test_attention_that_fits_stays_torchs_own() -> None:
    module = nn.MultiheadAttention(8, 4)
    assert not narrow_attention(module)
    assert type(module) is nn.MultiheadAttention


def test_a_recipe_exchanges_the_class_again() -> None:
    model = nn.TransformerEncoderLayer(8, 4, 12, batch_first=True).double().eval()
    model.self_attn.out_proj.weight.data[:, :2] = 0
    result = thin(model, Q)
    recipe = ThinRecipe.from_json(result.recipe.to_json())
    again = rebuild(model, recipe, result.model.state_dict())
    assert type(again.self_attn) is NarrowAttention
    assert torch.equal(again(Q), result.model(Q))


def test_it_trains_on() -> None:
    _, narrow = pair(batch_first=True, dropout=0.5)
    narrow.train()(Q, Q, Q)[0].square().sum().backward()
    assert all(parameter.grad is not None for parameter in narrow.parameters())


def test_its_weights_are_compressed_as_those_of_torchs() -> None:
    model = nn.TransformerEncoderLayer(8, 4, 12, batch_first=True).eval()
    model.self_attn.out_proj.weight.data[:, :2] = 0
    narrow = thin(model, Q.float()).model
    assert type(narrow.self_attn) is NarrowAttention
    sites = [
        [str(hook.site) for hook in quantize_weights(one, example_inputs=Q.float()).nncf.hooks]
        for one in (model, narrow)
    ]
    assert sites[0] == sites[1]
    assert "self_attn.in_proj_weight" in sites[0]
