"""A file fills a fresh model, whatever its modules share."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import StorageError
from nncfx.schemes import group_scores, keep_groups, zero_groups
from nncfx.thinning import prunable_channels, thin


class Tied(nn.Module):
    """A table that is its own head, as in most language models."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 64), nn.Linear(64, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.table(x))
        return result


class Skip(nn.Module):
    """Holds a convolution that its owner holds too, as the blocks of MONAI's DynUNet do."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.down, self.next = first, nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.next(self.down(x).relu())
        return result


class Held(nn.Module):
    """A convolution in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 2, 1)
        self.skip = Skip(self.first)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.skip(x).relu())
        return result


@pytest.mark.parametrize("name", ["model.safetensors", "model.nncfx"])
def test_a_weight_that_one_reader_rounds_is_two_in_the_file_and_after(
    tmp_path: Path, name: str
) -> None:
    x = torch.randint(0, 50, (2, 7))
    table = ["Tied/Embedding[table]/embedding_0"]
    rounded = nncfx.quantize_weights(Tied(), bits=4, example_inputs=x, ignored_scopes=table)
    stripped = nncfx.strip(rounded)
    save = nncfx.save if name.endswith("safetensors") else nncfx.storage.save
    save(tmp_path / name, stripped)
    _, again = nncfx.load(tmp_path / name, Tied())
    assert again.table.weight is not again.head.weight
    assert torch.equal(again(x), rounded(x))


def test_one_that_all_round_alike_stays_one(tmp_path: Path) -> None:
    x = torch.randint(0, 50, (2, 7))
    stripped = nncfx.strip(nncfx.quantize_weights(Tied(), bits=4, example_inputs=x))
    nncfx.save(tmp_path / "model.safetensors", stripped)
    _, again = nncfx.load(tmp_path / "model.safetensors", Tied())
    assert again.table.weight is again.head.weight
    assert torch.equal(again(x), stripped(x))


def test_two_tensors_do_not_fill_one_module(tmp_path: Path) -> None:
    two = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    nncfx.save(tmp_path / "model.safetensors", two)
    layer = nn.Linear(2, 2)
    with pytest.raises(StorageError, match=r"'a\.\w+' and 'b\.\w+', which are one"):
        nncfx.load(tmp_path / "model.safetensors", nn.ModuleDict({"a": layer, "b": layer}))


def test_a_thinned_module_in_two_places_comes_back(tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    model = Held()
    channels = prunable_channels(model, x)
    scores = group_scores(channels, dict(model.named_parameters()), "l1norm")
    zero_groups(channels, keep_groups(scores, 0.5), dict(model.named_parameters()))
    thinned = thin(model, x, channels=channels).model
    assert thinned.first.out_channels < Held().first.out_channels
    nncfx.save(tmp_path / "model.safetensors", thinned)
    _, again = nncfx.load(tmp_path / "model.safetensors", Held())
    assert again.first is again.skip.down
    assert torch.equal(again(x), thinned(x))
