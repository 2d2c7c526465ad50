"""Scales of activations, folded into what makes them."""

import torch

from language_models import language_model
from nncfx.quantization.blocks.activation_scales import best_scales, scalable_groups, scale_group
from nncfx.quantization.blocks.block_calls import block_calls, find_blocks
from nncfx.quantization.blocks.block_layers import find_block_layers, group_moments


def test_scales_change_nothing_in_float_and_less_than_none_once_rounded() -> None:
    model = language_model(num_hidden_layers=1)
    with torch.no_grad():
        model.model.layers[0].input_layernorm.weight[::7] = 20.0
    batch = {"input_ids": torch.randint(90, (4, 30))}
    exact = model(**batch).logits
    (calls,) = block_calls(model, find_blocks(model), [batch])
    block = model.model.layers[0]
    found = find_block_layers(block, calls[0])
    assert [len(one.layers) for one in found.groups] == [3, 1, 2, 1]
    scalable = scalable_groups(block, found)
    names = [[layer.name for layer in group.layers] for group, _ in scalable]
    assert names[0] == ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]
    assert ["mlp.gate_proj", "mlp.up_proj"] in names
    group, producers = scalable[0]
    (moments,) = group_moments(block, [group], calls)
    scales = best_scales(group.layers, moments, "int4", 32)
    assert scales[::7].mean() > scales[1::7].mean() * 1.5
    scale_group(group, producers, scales)
    torch.testing.assert_close(model(**batch).logits, exact, rtol=1e-3, atol=1e-3)
    assert not torch.equal(producers[0], torch.ones(64))
