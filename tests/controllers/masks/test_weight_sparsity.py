"""Algorithms on single weights take the experts of a mixture as they take linear layers."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import nncfx
from nncfx.controllers import Controller
from nncfx.errors import CompressionError
from nncfx.network import NNCFNetwork

EXPERTS = {"up": 1, "down": 2}
"""The stacks, and the axis of the outputs in each."""


class Mixture(nn.Module):
    """Each token goes through two of four experts, as GPT-OSS and Mixtral have them."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.up = nn.Parameter(torch.randn(4, 12, 8, generator=generator))
        self.down = nn.Parameter(torch.randn(4, 12, 8, generator=generator))
        self.router = nn.Linear(8, 4, bias=False)
        nn.init.normal_(self.router.weight, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).topk(2).indices.T
        rows = []
        for picked in chosen:
            hidden = torch.bmm(self.up[picked], x.unsqueeze(-1)).relu()
            rows.append(torch.bmm(hidden.transpose(1, 2), self.down[picked]).squeeze(1))
        return rows[0] + rows[1]


X = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))


def applied(**item: object) -> tuple[Controller, NNCFNetwork]:
    return nncfx.create_compressed_model(Mixture(), {"compression": item}, X)


def test_the_smallest_weights_of_all_experts_and_layers_are_zero() -> None:
    _, model = applied(
        algorithm="magnitude_sparsity", sparsity_init=0.5, params={"weight_importance": "abs"}
    )
    weights = {name: one.detach() for name, one in model.named_parameters() if one.ndim > 1}
    median = torch.cat([one.abs().flatten() for one in weights.values()]).median()
    for name, weight in weights.items():
        expected = weight.where(weight.abs() > median, 0)
        torch.testing.assert_close(model.nncf.weight(name), expected, atol=0, rtol=0)


@pytest.mark.parametrize("name", EXPERTS)
def test_groups_of_experts_lie_along_their_inputs(name: str) -> None:
    controller, model = applied(algorithm="nm_sparsity")
    controller.scheduler.epoch_step()
    by_input = model.nncf.weight(name).movedim(EXPERTS[name], -1)
    kept = (by_input != 0).unflatten(1, (-1, 4)).sum(2)
    assert kept.unique().tolist() == [2]


def test_experts_whose_inputs_make_no_groups_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="nncfx"):
        controller, _ = applied(algorithm="nm_sparsity", params={"n": 1, "m": 8})
    # the second matrix of each expert has 12 inputs
    assert [one.name for one in controller.statistics().layers] == ["router.weight", "up"]
    (message,) = [one.getMessage() for one in caplog.records if "experts" in one.getMessage()]
    assert message == (
        "nm_sparsity leaves alone the matrices of experts that the code picks from 'down'."
    )


def test_ignored_experts_keep_their_weights() -> None:
    controller, _ = applied(algorithm="magnitude_sparsity", ignored_scopes=["{re}__getitem__"])
    assert [one.name for one in controller.statistics().layers] == ["router.weight"]


@pytest.mark.parametrize(
    "item",
    [
        {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5},
        {"algorithm": "nm_sparsity"},
        {
            "algorithm": "rb_sparsity",
            "sparsity_init": 0.5,
            "compression_lr_multiplier": 300,
            "params": {"sparsity_freeze_epoch": 1},
        },
        {
            "algorithm": "movement_sparsity",
            "params": {
                "warmup_start_epoch": 0,
                "warmup_end_epoch": 1,
                "importance_regularization_factor": 0.1,
                "sparsity_target": 0.5,
                "enable_structured_masking": False,
                "steps_per_epoch": 2,
            },
        },
        {"algorithm": "weight_clustering", "bits": 2},
    ],
    ids=lambda item: item["algorithm"],
)
@pytest.mark.parametrize("experts", ["batched_mm", "grouped_mm"])
def test_a_mixture_of_transformers_is_trained_saved_and_stripped(
    item: dict[str, Any], experts: str, tmp_path: Path
) -> None:
    ids = torch.randint(0, 64, (2, 8), generator=torch.Generator().manual_seed(2))

    def made() -> nn.Module:
        torch.manual_seed(0)
        config = transformers.MixtralConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, use_cache=False,
        )  # fmt: skip
        model: nn.Module = transformers.MixtralForCausalLM(config)
        model.set_experts_implementation(experts)
        return model

    controller, model = nncfx.create_compressed_model(
        made(), {"compression": item}, {"input_ids": ids}
    )
    optimizer = torch.optim.Adam(controller.parameter_groups(lr=1e-2))
    model.train()
    for _ in range(2):
        controller.scheduler.epoch_step()
        for _ in range(2):
            controller.scheduler.step()
            loss = model(input_ids=ids, labels=ids).loss + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    expected = model.eval()(input_ids=ids).logits
    _, again = nncfx.load(
        nncfx.save(tmp_path / "m", model, controller), made(), {"input_ids": ids}
    )
    assert torch.equal(again.eval()(input_ids=ids).logits, expected)
    finished = controller.strip()
    assert torch.equal(finished(input_ids=ids).logits, expected)
    stack = dict(finished.named_parameters())["model.layers.0.mlp.experts.down_proj"].detach()
    if item["algorithm"] == "weight_clustering":
        assert len(stack.unique()) <= 4
    else:
        assert 0.3 < float((stack == 0).float().mean()) < 0.7


class Spectral(nn.Module):
    """A layer of real weights, and one of complex ones."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.complex = nn.Linear(8, 8), nn.Linear(8, 8, dtype=torch.complex64)

    def forward(self, x: Tensor) -> Tensor:
        return self.complex(self.real(x).to(torch.complex64)).abs()


@pytest.mark.parametrize("algorithm", ["rb_sparsity", "weight_clustering", "entropy_constraint"])
def test_complex_weights_are_left_alone_where_none_are_known(
    algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    config: dict[str, Any] = {"compression": {"algorithm": algorithm}}
    x = torch.ones(2, 8)
    controller, model = nncfx.create_compressed_model(Spectral(), config, x)
    assert f"{algorithm} leaves alone complex weights: 'complex.weight'" in caplog.text
    controller.level = 0.5
    (model.train()(x).sum() + controller.loss()).backward()
    assert {str(one.site) for one in model.nncf.hooks} == {"real.weight"}
    config["compression"]["ignored_scopes"] = ["Spectral/Linear[real]"]
    with pytest.raises(CompressionError, match="lies within the scopes and is real"):
        nncfx.create_compressed_model(Spectral(), config, x)


class Standardized(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight
        return nn.functional.linear(x, weight - weight.mean(1, keepdim=True), self.bias)


@pytest.mark.parametrize("algorithm", ["magnitude_sparsity", "weight_clustering", "nm_sparsity"])
def test_weights_that_the_forward_computes_are_told_of(
    algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(Standardized(8, 8), nn.Linear(8, 4, bias=False))
    nncfx.create_compressed_model(model, {"compression": {"algorithm": algorithm}}, X)
    # 64 of 64 + 8 + 32 parameters
    expected = "The forward computes weights from '0.weight' (linear), 61.5% of the model's"
    assert expected in caplog.text
    with pytest.raises(
        CompressionError, match=r"no weight to work on.* from '0.weight' \(linear\)"
    ):
        nncfx.create_compressed_model(
            nn.Sequential(Standardized(8, 8)), {"compression": {"algorithm": algorithm}}, X
        )


@pytest.mark.parametrize(("scopes", "is_told"), [("Linear", True), ("Conv", False)])
def test_zeros_of_several_algorithms_that_add_up_are_told(
    scopes: str, is_told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    both = [
        {"algorithm": "magnitude_sparsity", "target_scopes": f"{{re}}{scopes}"},
        {"algorithm": "nm_sparsity", "target_scopes": "{re}Linear"},
    ]
    model = nn.Sequential(nn.Conv1d(8, 8, 1), nn.Flatten(), nn.Linear(8, 8))
    with caplog.at_level(logging.WARNING, logger="nncfx"):
        nncfx.create_compressed_model(model, {"compression": both}, torch.randn(2, 8, 1))
    told = "magnitude_sparsity, nm_sparsity work on the same weights, '2.weight', and none"
    assert (told in caplog.text) is is_told


@pytest.mark.parametrize(
    ("scope", "other", "told"),
    [
        ("", "structure_pruning", "'0.weight', '0.bias', '2.weight' and 8 more"),
        ("", "neuron_pruning", "'5.weight', '5.bias', '7.weight'"),
        ("Conv", "neuron_pruning", ""),  # its rows of a linear layer are not the filters' columns
        ("", "branch_pruning", "'3.first.weight', '3.second.weight', '3.first.bias'"),
    ],
)
def test_channels_that_several_algorithms_remove_are_told(
    scope: str, other: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, 1), Branch(), nn.Flatten()),
        *(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
    )
    params = {"prune_first_conv": True, "align": 1}
    filters = {"algorithm": "filter_pruning", "params": params, "target_scopes": f"{{re}}{scope}"}
    both = [filters, {"algorithm": other}]
    with caplog.at_level(logging.WARNING, logger="nncfx"):
        nncfx.create_compressed_model(model, {"compression": both}, torch.randn(2, 3, 1, 1))
    said = [one for one in caplog.messages if "work on the same weights" in one]
    assert len(said) == bool(told)
    names = ", ".join(sorted(["filter_pruning", other]))
    assert all(f"{names} work on the same weights, {told}" in one for one in said)


class Branch(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x).relu())
