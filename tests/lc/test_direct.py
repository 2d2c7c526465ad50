"""Direct compression is the scheme and nothing else; fine-tuning holds the zeros."""

import copy

import torch
from torch import nn

from nncfx.channels.trace import analyze_channels
from nncfx.lc import DC, DCFineTuned, RecoveryData
from nncfx.schemes import Compose, NeuronPrune, Prune, Quantize


def test_direct_compression_is_the_scheme_alone(dense: nn.Module, digits: RecoveryData) -> None:
    scheme = Compose([Prune(), Quantize()])
    result = DC().recover(dense, scheme, 0.5, digits)
    expected = copy.deepcopy(dense)
    scheme.compress(expected, 0.5)
    for a, b in zip(result.compressed.parameters(), expected.parameters(), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    assert [record.loss for record in result.history] == [None]


def test_direct_compression_at_level_zero_is_the_model(
    dense: nn.Module, digits: RecoveryData
) -> None:
    result = DC().recover(dense, Prune(), 0.0, digits)
    assert result.metric == digits.validate(dense)


def test_fine_tuning_recovers_and_holds_the_zeros(dense: nn.Module, digits: RecoveryData) -> None:
    recipe = DCFineTuned(epochs=5, lr=0.05, lr_end=0.005)
    result = recipe.recover(dense, Prune(), 0.85, digits)
    direct = DC().recover(dense, Prune(), 0.85, digits)
    assert result.metric > direct.metric + 0.1
    for index in (0, 3, 5):
        name = f"{index}.weight"
        zeros = direct.model.get_parameter(name) == 0
        assert not result.model.get_parameter(name)[zeros].any()
    assert len(result.history) == 6


def test_fine_tuning_keeps_channels_dead(dense: nn.Module, digits: RecoveryData) -> None:
    scheme = NeuronPrune().bind(analyze_channels(dense, torch.zeros(2, 64)))
    direct = DC().recover(dense, scheme, 0.5, digits)
    tuned = DCFineTuned(epochs=2, lr=0.05).recover(dense, scheme, 0.5, digits)
    for name in ("0.weight", "0.bias", "1.weight", "1.bias", "3.weight"):
        zeros = direct.model.get_parameter(name) == 0
        assert not tuned.model.get_parameter(name)[zeros].any()


def test_the_rate_falls_geometrically_over_the_epochs(toy: RecoveryData) -> None:
    recipe = DCFineTuned(epochs=3, lr=0.08, lr_end=0.01)
    history = recipe.recover(nn.Linear(3, 2), Prune(), 0.5, toy).history
    rates = [record.learning_rate for record in history]
    torch.testing.assert_close(rates, [0.0, 0.08, 0.04, 0.02])


def test_direct_compression_is_returned_where_training_only_harms(toy: RecoveryData) -> None:
    data = RecoveryData(
        train=toy.train,
        validate=lambda model: -float(model.weight.norm()),
        criterion=lambda outputs, _: -outputs.square().mean(),
    )
    model = nn.Linear(3, 2)
    tuned = DCFineTuned(epochs=2, lr=0.01).recover(model, Prune(), 0.5, data)
    assert tuned.metric == DC().recover(model, Prune(), 0.5, data).metric
