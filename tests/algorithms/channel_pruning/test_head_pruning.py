"""Head, neuron and structure pruning: what each takes, and that masked equals thinned."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from nncfx.algorithms.channel_pruning.controller import ChannelPruningController
from nncfx.errors import CompressionError
from nncfx.thinning import thin
from nncfx.training.create import create_compressed_model

WORDS = torch.arange(6)[None]
IMAGE = torch.randn(1, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = BertConfig(**SIZES, vocab_size=20, max_position_embeddings=8, return_dict=False)
    return BertForSequenceClassification(config).double().eval()


def vit() -> nn.Module:
    torch.manual_seed(0)
    config = ViTConfig(**SIZES, image_size=8, patch_size=4)
    return ViTForImageClassification(config).double().eval()


def llama() -> nn.Module:
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=20, use_cache=False)
    return LlamaForCausalLM(config).double().eval()


def applied(
    algorithm: str, model: nn.Module, inputs: Tensor, **params: object
) -> ChannelPruningController:
    item = {"algorithm": algorithm, "params": {"align": 1} | params}
    return create_compressed_model(model, {"compression": item}, inputs)[0]


def taken(controller: ChannelPruningController) -> dict[str, int]:
    return {one.name: one.size for one in controller.channels.prunable}


def test_the_heads_of_bert_are_taken_and_nothing_else() -> None:
    prefix = "bert.encoder.layer"
    assert taken(applied("head_pruning", bert(), WORDS)) == {
        f"{prefix}.{index}.attention.self.query": 4 for index in range(2)
    }


def test_heads_that_share_keys_go_together() -> None:
    assert taken(applied("head_pruning", llama(), WORDS)) == {
        f"model.layers.{index}.self_attn.q_proj": 2 for index in range(2)
    }


def test_the_widths_of_berts_feed_forward_layers_are_neurons() -> None:
    found = taken(applied("neuron_pruning", bert(), WORDS))
    assert {size for name, size in found.items() if "intermediate" in name} == {24}
    assert not any("attention" in name for name in found)


def test_structure_pruning_takes_heads_and_neurons() -> None:
    found = {}
    for algorithm in ("head_pruning", "neuron_pruning"):
        found |= taken(applied(algorithm, bert(), WORDS))
    assert found.items() <= taken(applied("structure_pruning", bert(), WORDS)).items()


def test_structure_pruning_takes_first_and_strided_convolutions() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3, stride=2), nn.Conv2d(5, 2, 1))
    assert taken(applied("structure_pruning", net.double(), IMAGE)) == {"0": 4, "1": 5}


def test_filters_are_no_neurons_and_neurons_no_heads() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 6), nn.Linear(6, 2))
    assert taken(applied("neuron_pruning", net.double(), IMAGE)) == {"2": 6}
    # two sets without heads, one reason
    reasons = "may remove: it does not belong to attention heads; an output of the model. Widen"
    with pytest.raises(CompressionError, match=f"head_pruning finds no channels.*{reasons}"):
        applied("head_pruning", net, IMAGE)


def test_neurons_of_experts_are_pruned_and_thinned() -> None:
    torch.manual_seed(0)
    config = MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=3, vocab_size=20)
    model = MixtralForCausalLM(config).eval()
    controller = applied("neuron_pruning", model, WORDS, pruning_target=0.5)
    assert set(taken(controller)) == {f"model.layers.{index}.mlp.experts" for index in range(2)}
    controller.level = 0.5
    thinned = thin(model, WORDS)
    # of 24 neurons of each of 3 experts half; gate and up lie behind one another
    experts = thinned.model.model.layers[1].mlp.experts
    assert (experts.gate_up_proj.shape, experts.down_proj.shape) == ((3, 24, 16), (3, 16, 12))
    assert thinned.max_error < 1e-5


def test_a_layer_with_a_computed_weight_multiplies_no_two_activations() -> None:
    """As an expert, whose weight is a part of a stack."""

    class Expert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(6, 2)
            self.experts = nn.Parameter(torch.ones(2, 6, 4))

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.linear(self.first(x).relu(), self.experts[1])
            return self.last(x.relu())

    net, inputs = Expert().double(), IMAGE[0, :, :, 0].T
    assert taken(applied("neuron_pruning", net, inputs)) == {"first": 4, "experts": 6}
    with pytest.raises(CompressionError, match="it does not belong to attention heads"):
        applied("head_pruning", Expert().double(), inputs)


@pytest.mark.parametrize(
    ("build", "inputs"),
    [(bert, WORDS), (vit, IMAGE), (llama, WORDS)],
    ids=["bert", "vit", "llama"],
)
@pytest.mark.parametrize("algorithm", ["head_pruning", "neuron_pruning", "structure_pruning"])
def test_the_masked_transformer_is_the_thinned_one(
    algorithm: str,
    build: Any,  # noqa: ANN401 (a model's factory)
    inputs: Tensor,
) -> None:
    controller = applied(algorithm, build(), inputs)
    controller.level = 0.5
    result = thin(controller.model, inputs)
    assert result.max_error < 1e-12
    total = sum(one.numel() for one in controller.model.parameters())
    thinned = sum(one.numel() for one in result.model.parameters())
    claimed = controller.statistics().parameter_level
    assert 1 - thinned / total == pytest.approx(claimed, abs=1e-12)
    assert thinned < total


def test_two_of_four_heads_leave_half_of_each_projection() -> None:
    controller = applied("head_pruning", bert(), WORDS)
    controller.level = 0.5
    attention = thin(controller.model, WORDS).model.bert.encoder.layer[0].attention
    shapes = [tuple(one.weight.shape) for one in (attention.self.query, attention.self.value)]
    assert shapes == [(8, 16), (8, 16)]
    assert tuple(attention.output.dense.weight.shape) == (16, 8)


def test_heads_of_small_weights_go_first() -> None:
    model = bert()
    query, key, value = (
        getattr(model.bert.encoder.layer[1].attention.self, name)
        for name in ("query", "key", "value")
    )
    with torch.no_grad():
        for one in (query, key, value):
            one.weight[4:8] *= 1e-3  # the second head
    controller = applied("head_pruning", model, WORDS, all_weights=True)
    controller.level = 0.125  # one of eight
    mask = controller.masks.hooks["bert.encoder.layer.1.attention.self.query.weight"][0].mask
    assert mask[:, 0].tolist() == [1] * 4 + [0] * 4 + [1] * 8
    assert [one.after for one in controller.statistics().channels] == [4, 3]


@pytest.mark.parametrize("key", ["pruning_flops_target", "pruning_parameters_target"])
def test_a_budget_is_met_with_little_to_spare(key: str) -> None:
    controller = applied("structure_pruning", vit(), IMAGE, **{key: 0.2})
    controller.level = 0.2
    statistics = controller.statistics()
    reached = {
        "pruning_flops_target": statistics.macs_level,
        "pruning_parameters_target": statistics.parameter_level,
    }
    assert 0.2 <= reached[key] < 0.23  # a head is 2 % of the model


def test_parameters_out_of_reach_are_said_at_once() -> None:
    with pytest.raises(
        CompressionError, match=r"head_pruning can save at most 0\.\d+ of the parameters"
    ):
        applied("head_pruning", bert(), WORDS, pruning_parameters_target=0.9)
