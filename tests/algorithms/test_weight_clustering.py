"""Weight clustering: shared values, their gradients, what it does with zeros, and its files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorchcv.models.resnet_cifar import resnet20_cifar10
from torch import Tensor, nn

import nncfx
from nncfx.algorithms.weight_clustering.hook import bits_of_level, shared_values
from nncfx.errors import ConfigError, StorageError
from nncfx.schemes.kmeans import kmeans_1d

INPUTS = torch.ones(1, 40)


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 30), nn.ReLU(), nn.Linear(30, 10))


def clustered(*others: dict[str, Any], **item: Any) -> tuple[Any, nn.Module]:  # noqa: ANN401
    compression = [{"algorithm": "weight_clustering", **item}, *others]
    controller, model = nncfx.create_compressed_model(net(), {"compression": compression}, INPUTS)
    controller.scheduler.epoch_step()
    return controller, model


def distinct(weight: Tensor) -> int:
    return weight[weight != 0].unique().numel()


@pytest.mark.parametrize(("summed", "expected"), [(False, [1.5, 1.5, 0, 4]), (True, [3, 3, 0, 4])])
def test_weights_of_a_code_share_their_gradients(summed: bool, expected: list[float]) -> None:
    weight = torch.tensor([1.0, 3.0, 0.0, 8.0], requires_grad=True)
    codes = torch.tensor([1, 1, 1, 2], dtype=torch.int32)
    shared = shared_values(weight, codes, 3, summed=summed)
    (shared * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert weight.grad.tolist() == expected


def test_a_step_moves_a_shared_value_as_deep_compression_does() -> None:
    weight = torch.tensor([1.0, 3.0, 8.0], requires_grad=True)
    codes = torch.tensor([1, 1, 2], dtype=torch.int32)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    (shared_values(weight, codes, 3, summed=True) * torch.tensor([1.0, 2.0, 4.0])).sum().backward()
    optimizer.step()
    after = shared_values(weight, codes, 3, summed=True)
    # C_k - lr * sum of the gradients: 2 - 0.1 * (1 + 2) and 8 - 0.1 * 4
    torch.testing.assert_close(after, torch.tensor([1.7, 1.7, 7.6]))


@pytest.mark.parametrize(
    ("dtype", "count"), [(torch.bfloat16, 1000), (torch.float32, 2**24 + 2**20)]
)
def test_many_weights_of_a_code_are_counted_and_summed_exactly(
    dtype: torch.dtype, count: int
) -> None:
    # sums of bfloat16 end at 256, those of float32 at 2^24
    weight = torch.full((count,), 0.01).to(dtype)
    shared = shared_values(weight, torch.ones(count, dtype=torch.int32), 2)
    assert torch.equal(shared, weight)


def test_codes_beyond_a_byte_are_kept() -> None:
    weight = torch.arange(1.0, 301.0, requires_grad=True)
    codes = torch.arange(1, 301, dtype=torch.int32)
    shared = shared_values(weight, codes, 301)
    shared.mul(weight.detach()).sum().backward()
    assert torch.equal(shared, weight)
    assert torch.equal(weight.grad, weight)  # type: ignore[arg-type]


def test_a_forward_keeps_a_byte_of_each_weight_for_its_backward() -> None:
    kept: list[int] = []
    weight = torch.randn(300, 1000, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.nbytes), lambda x: x):
        shared_values(weight, torch.ones(300, 1000, dtype=torch.int32), 2)
    assert sum(kept) == 300 * 1000 + 2 * 8


def test_a_layer_has_one_value_less_than_codes() -> None:
    _, model = clustered(bits=3)
    stripped = nncfx.strip(model)
    assert [distinct(stripped[n].weight) for n in (0, 2)] == [7, 7]


def test_training_keeps_the_values_shared_and_moves_them() -> None:
    controller, model = clustered(bits=2)
    before = nncfx.strip(model)[0].weight
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        (model(torch.randn(8, 40)).square().sum() + controller.loss()).backward()
        optimizer.step()
    after = nncfx.strip(model)[0].weight
    assert distinct(after) == 3
    assert not torch.equal(before, after)


def test_codes_stand_still_after_the_start_epoch() -> None:
    controller, model = clustered(bits=2)
    codes = {k: v.clone() for k, v in model.state_dict().items() if k.endswith("codes")}
    with torch.no_grad():
        model[0].weight.mul_(-1)  # type: ignore[index, union-attr, operator]
    controller.scheduler.epoch_step()
    assert all(torch.equal(model.state_dict()[k], v) for k, v in codes.items())


def test_nothing_is_clustered_before_the_start_epoch() -> None:
    controller, model = clustered(bits=2, params={"start_epoch": 1})
    assert torch.equal(model(INPUTS), net()(INPUTS))
    controller.scheduler.epoch_step()
    assert distinct(nncfx.strip(model)[0].weight) == 3


def test_pruned_weights_are_no_part_of_the_values() -> None:
    sparsity = {
        "algorithm": "magnitude_sparsity",
        "params": {"schedule": "constant", "sparsity_target": 0.8},
    }
    _, model = clustered(sparsity, bits=2)
    weights = torch.cat(
        [p.flatten() for n, p in nncfx.strip(model).named_parameters() if "w" in n]
    )
    assert (weights == 0).float().mean() == pytest.approx(0.8, abs=0.001)
    # the values lie among the largest fifth: none is as small as the pruned ones were
    largest = net()[0].weight.abs().max()
    assert weights[weights != 0].abs().min() > 0.5 * largest


def test_weights_pruned_after_clustering_are_zero() -> None:
    sparsity = {"algorithm": "magnitude_sparsity", "params": {"schedule": "constant"}}
    controller, model = clustered(sparsity, bits=3)
    controller["magnitude_sparsity"].level = 0.9
    weights = torch.cat(
        [p.flatten() for n, p in nncfx.strip(model).named_parameters() if "w" in n]
    )
    assert (weights == 0).float().mean() == pytest.approx(0.9, abs=0.001)


def test_scopes_may_have_bits_of_their_own() -> None:
    controller, model = clustered(bits=2, bits_by_scope={"{re}Linear\\[0\\]": 4})
    stripped = nncfx.strip(model)
    assert [distinct(stripped[n].weight) for n in (0, 2)] == [15, 3]
    assert [layer.bits for layer in controller.statistics().layers] == [4, 2]


def test_bits_for_a_scope_that_is_not_there_are_an_error() -> None:
    with pytest.raises(ConfigError, match="bits_by_scope: 'Sequential/Lin' matches no operation"):
        clustered(bits_by_scope={"Sequential/Lin": 4})


def test_the_statistics_say_what_codes_save() -> None:
    controller, _ = clustered(bits=8)
    assert controller.statistics().level == 0.75  # 8 of 32 bits


@pytest.mark.parametrize("init", ["linear", "density", "random"])
def test_every_initialisation_gives_a_codebook(init: str) -> None:
    _, model = clustered(bits=3, params={"init": init})
    assert 2 <= distinct(nncfx.strip(model)[0].weight) <= 7


def test_density_starts_from_equally_many_values_each() -> None:
    # 3, 3 and 3 values: quantiles at 1/6, 3/6 and 5/6 lie in one cluster each
    values = torch.tensor([0.0, 0.1, 0.2, 1.0, 1.1, 1.2, 90.0, 90.1, 90.2])
    centroids = kmeans_1d(values, 3, init="density", max_steps=1)
    torch.testing.assert_close(centroids, torch.tensor([0.1, 1.1, 90.1]))


def test_a_random_start_depends_on_its_seed_only() -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    first, again, other = (kmeans_1d(values, 9, init="random", seed=s) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@settings(deadline=None)
@given(st.integers(1, 31))
def test_a_level_is_the_fraction_of_bits_saved(bits: int) -> None:
    assert bits_of_level(1 - bits / 32) == bits


def test_a_real_network_trains_on_shared_values() -> None:
    torch.manual_seed(0)
    images = torch.randn(4, 3, 32, 32)
    config = {"compression": {"algorithm": "weight_clustering", "bits": 4}}
    controller, model = nncfx.create_compressed_model(resnet20_cifar10(), config, images)
    controller.scheduler.epoch_step()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(images), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    kinds = (nn.Conv2d, nn.Linear)
    weights = [one.weight for one in nncfx.strip(model).modules() if isinstance(one, kinds)]
    assert max(map(distinct, weights)) == 15


def test_the_file_holds_the_shared_values_exactly(tmp_path: Path) -> None:
    sparsity = {
        "algorithm": "magnitude_sparsity",
        "params": {"schedule": "constant", "sparsity_target": 0.8},
    }
    _, model = clustered(sparsity, bits=3)
    stripped = nncfx.strip(model)
    nncfx.storage.save(tmp_path / "m.nncfx", stripped)
    again = nncfx.storage.load(tmp_path / "m.nncfx", net())
    assert torch.equal(again[0].weight, stripped[0].weight)
    rows = {row.name: row for row in nncfx.storage.inspect(tmp_path / "m.nncfx")}
    assert rows["0.weight"].codec.endswith("+codebook")
    assert rows["0.weight"].bits_per_weight < 2


@pytest.mark.parametrize("code", [99, -1])
def test_a_code_without_a_value_is_refused_when_loaded(code: int) -> None:
    controller, model = clustered(bits=2)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    (name, *_) = (one for one in state if one.endswith(".codes"))
    state[name].view(-1)[0] = code
    with pytest.raises(StorageError, match=rf"codes of shared weights lie in .*{code}"):
        model.load_state_dict(state)
    assert controller.level
