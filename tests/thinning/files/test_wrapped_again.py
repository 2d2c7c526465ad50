"""Promises of nncfx.thinning.files.wrapped_again."""

from pathlib import Path

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import StorageError
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.storage.models.stored_model import StoredModel
from nncfx.thinning.files.wrapped_again import call_counts, warn_other_calls, wrapped
from nncfx.tracing import Insertion, PostSite


class Cached(nn.Module):
    """Fills a table in its first forward, with a product of which hooks know nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
        self.table: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if 4 not in self.table:
            self.table[4] = torch.arange(4).float() * 0.1
        x = torch.relu(self.first(x)) * self.table[4]
        return self.last(x * 100) * 3


X = torch.linspace(-1, 1, 32).view(8, 4)


def cached(*, is_warm: bool) -> Cached:
    torch.manual_seed(0)
    model = Cached().eval()
    if is_warm:
        model(X)
    return model


@pytest.mark.parametrize("ending", ["safetensors", "nncfx"])
def test_a_full_cache_comes_back_into_a_model_that_has_none_yet(
    tmp_path: Path, ending: str
) -> None:
    quantized = nncfx.quantize(cached(is_warm=True), [X])
    expected = quantized(X)
    path = tmp_path / f"model.{ending}"
    if ending == "nncfx":
        nncfx.storage.save(path, quantized)
    else:
        nncfx.save(path, quantized)
    _, loaded = nncfx.load(path, cached(is_warm=False))
    assert torch.equal(loaded.eval()(X), expected)


def test_a_cache_that_was_empty_is_told_of_where_it_is_full(tmp_path: Path) -> None:
    quantized = nncfx.quantize(cached(is_warm=False), [X])
    nncfx.save(tmp_path / "model.safetensors", quantized)
    with pytest.warns(UserWarning, match="Cached/__mul__ 3 times, and 4 times then"):
        nncfx.load(tmp_path / "model.safetensors", cached(is_warm=True))


class Padded(nn.Module):
    """Reads its mask only if something is masked, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        if not mask.all():
            x = x * mask[:, :, None]
        return self.last(x[torch.arange(2), 0])


@pytest.mark.parametrize("masked", [0, 1, 3])
def test_a_model_that_was_traced_with_padding_needs_no_example_inputs(
    tmp_path: Path, masked: int
) -> None:
    torch.manual_seed(0)
    mask = torch.ones(2, 5, dtype=torch.long)
    mask[1, 5 - masked :] = 0
    inputs = {"x": torch.randn(2, 5, 4), "mask": mask}
    quantized = nncfx.quantize(Padded().eval(), [inputs])
    nncfx.save(tmp_path / "model.safetensors", quantized)
    _, loaded = nncfx.load(tmp_path / "model.safetensors", Padded().eval())
    assert torch.equal(loaded(**inputs), quantized(**inputs))


def test_only_functions_with_hooks_are_counted_and_no_only_call_of_a_scope() -> None:
    model = nncfx.wrap(cached(is_warm=False), X)
    for address in ("Cached/__mul___1", "Cached/Linear[first]/linear_0"):
        hook = Insertion(PostSite(address), nn.Identity(), 0, "test")
        model.nncf.register([hook])
    model.nncf.commit()
    assert call_counts(model) == {"Cached/__mul__": 4}
    assert not any(isinstance(one.hook, Quantizer) for one in model.nncf.hooks)


def test_calls_that_are_no_object_are_damage() -> None:
    stored = StoredModel(tensors={}, sizes={}, structure={"calls": [1]}, read=dict)
    with pytest.raises(StorageError, match="its calls are not an object"):
        wrapped(cached(is_warm=False), stored, X)
    with pytest.raises(StorageError, match="its calls are not an object"):
        warn_other_calls(nncfx.wrap(cached(is_warm=False), X), stored)


@pytest.mark.parametrize("ending", ["safetensors", "nncfx"])
@pytest.mark.parametrize("before", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("after", [torch.float32, torch.bfloat16, torch.float64])
def test_a_model_of_another_dtype_is_loaded_into_a_fresh_one(
    tmp_path: Path, ending: str, before: torch.dtype, after: torch.dtype
) -> None:
    def fresh() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))

    x = torch.linspace(-1, 1, 192).view(1, 3, 8, 8)
    quantized = nncfx.quantize(fresh().eval().to(before), [x.to(before)]).to(after)
    path = tmp_path / f"model.{ending}"
    (nncfx.storage.save if ending == "nncfx" else nncfx.save)(path, quantized)
    for one in (fresh, fresh().to(after)):
        _, loaded = nncfx.load(path, one)
        assert torch.equal(loaded.eval()(x.to(after)), quantized(x.to(after)))
