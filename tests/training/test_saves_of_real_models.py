"""Pretrained architectures, compressed in several ways, come back from their files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from language_models import bert as encoder
from nncfx.quantization.weight_only import quantize_weights
from nncfx.thinning import thin
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.tensors import tensors_in

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
TOKENS = {"input_ids": torch.arange(32).reshape(2, 16)}
PRUNING = {
    "algorithm": "filter_pruning",
    "pruning_init": 0.4,
    "params": {"all_weights": True, "align": 1},
}
QUANTIZATION = {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}}


def resnet() -> nn.Module:
    models = pytest.importorskip("pytorchcv.models.resnet_cifar", reason="needs pytorchcv")
    torch.manual_seed(0)
    return models.resnet20_cifar10().eval()


def mobilenet() -> nn.Module:
    models = pytest.importorskip("pytorchcv.models.mobilenetv2", reason="needs pytorchcv")
    torch.manual_seed(0)
    return models.mobilenetv2_wd4().eval()


bert = partial(encoder, hidden_size=64, intermediate_size=128, return_dict=False)


def assert_back(
    model: nn.Module, fresh: Callable[[], nn.Module], inputs: ExampleInputs, folder: Path
) -> None:
    model.eval()
    expected = tensors_in(run(model, inputs))
    paths = nncfx.save(folder / "a", model), nncfx.storage.save(folder / "b", model).path
    for path in paths:
        _, again = nncfx.load(path, fresh)
        found = tensors_in(run(again.eval(), inputs))
        assert all(map(torch.equal, found, expected)), path.name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fresh", "inputs"), [(resnet, IMAGES), (mobilenet, torch.randn(1, 3, 224, 224))]
)
def test_a_pruned_and_quantized_network_comes_back_thinned(
    fresh: Callable[[], nn.Module], inputs: torch.Tensor, tmp_path: Path
) -> None:
    config = {"compression": [PRUNING, QUANTIZATION]}
    controller, model = nncfx.create_compressed_model(fresh(), config, inputs)
    dense = sum(one.numel() for one in fresh().parameters())
    result = thin(model)
    assert sum(one.numel() for one in result.model.parameters()) < 0.9 * dense
    assert_back(result.model, fresh, inputs, tmp_path)
    assert (tmp_path / "b").stat().st_size < 1.3 * dense
    assert_back(controller.strip(), fresh, inputs, tmp_path)


@pytest.mark.slow
def test_a_network_with_folded_batch_norms_comes_back(tmp_path: Path) -> None:
    model = nncfx.quantize(resnet(), [IMAGES], target="vta")
    assert_back(model, resnet, IMAGES, tmp_path)


@pytest.mark.slow
def test_a_thinned_network_is_quantized_and_comes_back(tmp_path: Path) -> None:
    _, model = nncfx.create_compressed_model(resnet(), {"compression": PRUNING}, IMAGES)
    assert_back(nncfx.quantize(thin(model).model, [IMAGES]), resnet, IMAGES, tmp_path)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_transformer_with_quantized_weights_comes_back_small(bits: int, tmp_path: Path) -> None:
    model = quantize_weights(bert(), bits=bits, example_inputs=TOKENS)  # type: ignore[arg-type]  # 4 or 8
    assert_back(model, bert, TOKENS, tmp_path)
    matrices = [one for one in bert().parameters() if one.ndim > 1]
    weights = sum(one.numel() for one in matrices)
    rest = sum(4 * one.numel() for one in bert().parameters()) - 4 * weights
    # 4 bits, and scale and zero point for 32; or 8 bits, and a scale for 64; names, records, plan
    each = {4: 0.5 + 5 / 32, 8: 1 + 4 / 64}[bits]
    assert (tmp_path / "a").stat().st_size < each * weights + rest + 2000 * len(matrices)
    assert (tmp_path / "b").stat().st_size < each * weights + rest
