"""Batch norms follow the data, and nothing else changes."""

import pytest
import torch
from torch import nn

from nncfx.compressor import create_compressed_model
from nncfx.controllers import adapt_batch_norms
from nncfx.errors import ArgumentError


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.5), nn.Linear(3, 2))


def test_the_running_mean_moves_by_the_momentum_towards_the_batch() -> None:
    model = nn.Sequential(nn.BatchNorm1d(2))
    batch = torch.tensor([[0.0, 2.0], [2.0, 4.0]])
    assert adapt_batch_norms(model, [batch], samples=2) == 2
    torch.testing.assert_close(model[0].running_mean, torch.tensor([0.1, 0.3]))


def test_only_statistics_change_and_modes_are_restored() -> None:
    model = network().train()
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    adapt_batch_norms(model, [torch.randn(8, 4)])
    changed = {n for n, value in model.state_dict().items() if not torch.equal(value, before[n])}
    assert changed == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert [module.training for module in model] == [True, True, False, True]


def test_an_endless_loader_is_read_up_to_the_samples() -> None:
    def endless():  # noqa: ANN202 (a generator)
        while True:
            yield torch.randn(8, 4), torch.zeros(8)

    seen: list[tuple[int, int]] = []
    count = adapt_batch_norms(
        network(), endless(), samples=20, progress=lambda *now: seen.append(now)
    )
    assert count == 24
    assert seen == [(8, 20), (16, 20), (20, 20)]


def test_a_mapping_is_passed_by_keyword_and_forward_says_otherwise() -> None:
    model = network()
    assert adapt_batch_norms(model, [{"input": torch.randn(5, 4)}]) == 5
    call = {"forward": lambda m, batch: m(batch["x"]["y"])}
    assert adapt_batch_norms(model, [{"x": {"y": torch.randn(5, 4)}}], **call) == 1


def test_a_batch_of_another_kind_is_refused_and_modes_are_restored() -> None:
    model = network().train()
    with pytest.raises(ArgumentError, match="A batch is or begins with a str"):
        adapt_batch_norms(model, ["x"])
    assert all(module.training for module in model.modules())


def test_a_model_without_batch_norms_sees_nothing() -> None:
    assert adapt_batch_norms(nn.Linear(2, 2), [torch.randn(1, 2)]) == 0


def item(samples: int) -> dict[str, object]:
    adaptation = {"num_bn_adaptation_samples": samples}
    return {
        "algorithm": "magnitude_sparsity",
        "sparsity_init": 0.5,
        "initializer": {"batchnorm_adaptation": adaptation},
    }


def test_create_adapts_batch_norms_to_the_compressed_model() -> None:
    batch = torch.randn(16, 4)
    config = {"compression": item(16)}
    _, model = create_compressed_model(network(), config, batch, calibration_batches=[batch])
    masked = model[0](batch)
    torch.testing.assert_close(model[1].running_mean, 0.1 * masked.mean(dim=0))


def test_create_without_data_says_what_to_pass() -> None:
    with pytest.raises(ArgumentError, match="Pass calibration_batches"):
        create_compressed_model(network(), {"compression": item(16)}, torch.randn(2, 4))


def test_no_samples_need_no_data() -> None:
    create_compressed_model(network(), {"compression": item(0)}, torch.randn(2, 4))


def test_a_teacher_does_not_see_the_data() -> None:
    items = [item(16), {"algorithm": "knowledge_distillation", "type": "mse"}]
    batch = torch.randn(16, 4)
    _, model = create_compressed_model(
        network(), {"compression": items}, batch, calibration_batches=[batch]
    )
    (mean,) = (v for n, v in model.state_dict().items() if n.endswith("network.1.running_mean"))
    assert mean.eq(0).all()
