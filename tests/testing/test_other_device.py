"""The device that is none refuses what a GPU refuses; what runs on a GPU runs on it."""

import copy
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import nncfx
from nncfx.lc import LC, DCFineTuned, Recovery
from nncfx.objectives import Minimize, footprint
from nncfx.quantization import (
    Bytes,
    QuantizeOptions,
    RangeRequest,
    quantization_errors,
    quantize,
    quantize_mixed,
    quantize_weights,
)
from nncfx.search import SearchSettings
from nncfx.testing import other_device

IMAGES = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    ).eval()


@pytest.fixture(params=[True, False], ids=["with float64", "without"])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    with other_device(float64=request.param) as there:
        yield there


@pytest.mark.parametrize(
    "meet",
    [
        lambda here, there: there + here,
        lambda here, there: here @ there,
        lambda here, there: torch.stack([here, there]),
        lambda here, there: here.add_(there),
        lambda here, there: here[there.long()],
        lambda here, there: torch.where(there > 0, here, here),
    ],
)
def test_tensors_of_both_devices_do_not_meet(
    meet: Callable[[Tensor, Tensor], Tensor], device: torch.device
) -> None:
    here = torch.ones(3, 3)
    with pytest.raises(RuntimeError, match=r"at least two devices"):
        meet(here, torch.ones(3, 3, device=device))


def test_numbers_copies_and_indices_meet(device: torch.device) -> None:
    there = torch.arange(6.0, device=device).view(2, 3)
    assert there.device == device
    assert (there * torch.tensor(2.0)).device == device
    assert there[torch.tensor([1])].tolist() == [[3, 4, 5]]
    here = torch.zeros(2, 3).copy_(there)
    assert here.device.type == "cpu"
    assert there.cpu().numpy().sum() == float(there.sum()) == 15


def test_apples_gpus_have_no_float64() -> None:
    with other_device(float64=False) as device, pytest.raises(TypeError, match="float64"):
        torch.ones(2, device=device).double()


def test_a_module_trains_as_on_the_cpu(device: torch.device) -> None:
    weights = []
    for place in (torch.device("cpu"), device):
        model, labels = network().to(place).train(), torch.zeros(32, dtype=torch.long)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            cross_entropy(model(IMAGES.to(place)), labels.to(place)).backward()
            optimizer.step()
        weights.append(copy.deepcopy(model).cpu().state_dict())
    assert all(torch.equal(one, weights[1][name]) for name, one in weights[0].items())


OPTIONS = {
    **{f"range {one}": {"activation_range": RangeRequest(method=one)} for one in ("mse", "kl")},
    "rounding gptq": {"rounding": "gptq"},
    "smooth": {"smooth": True, "equalize": True, "correct_biases": True},
    "as by default": {},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_quantize_gives_the_same(name: str, device: torch.device) -> None:
    options = QuantizeOptions(**OPTIONS[name])  # type: ignore[arg-type]
    here = quantize(network(), IMAGES.split(8), weight_bits=4, options=options)
    there = quantize(
        network().to(device), IMAGES.to(device).split(8), weight_bits=4, options=options
    )
    assert torch.equal(there(IMAGES.to(device)).cpu(), here(IMAGES))


def test_what_looks_at_a_quantized_model(device: torch.device) -> None:
    batches = IMAGES.to(device).split(8)
    model = network().to(device)
    report = quantization_errors(quantize(model, batches), batches, reference=model)
    assert report.worst(1)
    mixed = quantize_mixed(model, batches, Bytes(2500), widths=(8, 4))
    assert mixed.size_bytes <= 2500


@pytest.mark.parametrize("method", ["round", "gptq", "hqq"])
def test_quantize_weights_gives_the_same(method: str, device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))
    rows = torch.randn(16, 64)
    outputs = []
    for place in (torch.device("cpu"), device):
        small = quantize_weights(
            copy.deepcopy(model).to(place),
            [rows.to(place)],
            bits=4,
            method=method,  # type: ignore[call-overload]
        )
        outputs.append(small(rows.to(place)).cpu())
    assert torch.equal(*outputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    "recovery", [LC(steps=2, mb_iterations_per_l=1), DCFineTuned(epochs=1, lr=0.01)]
)
def test_a_search_moves_its_examples_to_the_model(
    recovery: Recovery, device: torch.device
) -> None:
    loader = DataLoader(TensorDataset(IMAGES, torch.arange(32) % 10), 16)
    result = nncfx.Compressor(
        model=network().to(device),
        objective=Minimize(footprint),
        scheme=nncfx.schemes.Prune(),
        optimizer=recovery,
        trainloader=loader,
        valloader=loader,
        testloader=loader,
        criterion=cross_entropy,
        eps=0.5,
        runtime="torch",
        settings=SearchSettings(max_evaluations=1),
    ).run()
    assert {one.device for one in result.model.parameters()} == {device}
