"""Pruning without training."""

import logging

import pytest
import torch
from torch import Tensor

from language_models import language_model
from nncfx.errors import ArgumentError
from nncfx.quantization.blocks.one_shot_pruning import (
    PruningSettings,
    prune_blocks,
    smallest,
    sparsegpt,
    wanda,
)
from nncfx.quantization.rounding.curvature import curvature, reconstruction_errors


def case() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(600, 192, generator=generator)
    data = data @ torch.randn(192, 192, generator=generator) / 14 * torch.linspace(0.1, 3, 192)
    return torch.randn(32, 192, generator=generator), data.T @ data / 600


@pytest.mark.parametrize(
    "settings", [{"level": 0.5}, {"pattern": (2, 4)}], ids=["level", "pattern"]
)
def test_sparsegpt_loses_less_than_wanda_and_wanda_less_than_magnitudes(
    settings: dict[str, object],
) -> None:
    weight, moments = case()
    chosen = PruningSettings(**settings)  # type: ignore[arg-type]  # as above
    known = curvature(moments, by_energy=chosen.pattern is None)
    by_magnitude = weight.masked_fill(smallest(weight.abs(), chosen), 0)
    pruned = [sparsegpt(weight, known, chosen), wanda(weight, known, chosen), by_magnitude]
    errors = [float(reconstruction_errors(weight, one, moments).sum()) for one in pruned]
    assert errors[0] < errors[1] < errors[2]
    for one in pruned:
        zeros = one == 0
        assert zeros.float().mean() == 0.5
        if chosen.pattern is not None:
            assert (zeros.view(32, -1, 4).sum(2) == 2).all()


def test_wanda_scores_by_hand() -> None:
    """Magnitudes 3, 2, 1, 4 with norms 1, 2, 10, 1 score 3, 4, 10, 4; of equal ones the first."""
    weight, norms = torch.tensor([[3.0, -2.0, 1.0, 4.0]]), torch.tensor([1.0, 2.0, 10.0, 1.0])
    known = curvature(torch.diag(norms.square()))
    assert wanda(weight, known, PruningSettings(level=0.5)).tolist() == [[0, 0, 1, 4]]
    assert wanda(weight, known, PruningSettings(level=0.0)).tolist() == weight.tolist()


def test_all_linear_layers_of_the_blocks_of_gpt2_are_sparse() -> None:
    model = language_model("gpt2")
    batches = [{"input_ids": torch.randint(90, (8, 30))} for _ in range(3)]
    with torch.no_grad():
        exact = model(**batches[0]).logits
        errors = []
        for method in ("sparsegpt", "wanda"):
            pruned = prune_blocks(model, batches, PruningSettings(level=0.5, method=method))
            errors.append(float((pruned(**batches[0]).logits - exact).square().mean()))
            for name, one in pruned.transformer.h.named_parameters():
                # columns make the outputs
                assert one.ndim == 1 or (one == 0).float().mean() == 0.5, name
    assert errors[0] < errors[1]
    assert (model.transformer.h[0].mlp.c_fc.weight != 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either level= .* or pattern="),
        ({"level": 50.0}, r"level is 50.0; .* lies in \[0, 1\)"),
        ({"pattern": (4, 4)}, r"pattern is \(4, 4\)"),
        ({"level": 0.5, "method": "wandb"}, "no method 'wandb'. Did you mean 'wanda'"),
    ],
)
def test_what_is_not_admissible_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        PruningSettings(**options)  # type: ignore[arg-type]  # so it is tried


def test_rows_that_the_pattern_does_not_divide_are_refused() -> None:
    with pytest.raises(ArgumentError, match="not a multiple of 4"):
        smallest(torch.ones(2, 6), PruningSettings(pattern=(2, 4)))


def test_experts_that_stay_dense_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """They are stacked in one parameter, which no linear layer of the block is."""
    model = language_model("mixtral", num_hidden_layers=1)
    with caplog.at_level(logging.WARNING):
        found = prune_blocks(
            model, [{"input_ids": torch.randint(90, (4, 16))}], PruningSettings(level=0.5)
        )
    block = found.model.layers[0]
    matrices = {name: one for name, one in block.named_parameters() if one.ndim > 1}
    dense = [name for name, one in matrices.items() if bool((one != 0).all())]
    share = sum(matrices[name].numel() for name in dense) / sum(
        one.numel() for one in matrices.values()
    )
    assert share > 0.5
    told = f"{len(dense)} matrices of MixtralDecoderLayer, {100 * share:.1f} % of its weights"
    assert f"{told}, stay dense: '{dense[0]}'" in caplog.text
