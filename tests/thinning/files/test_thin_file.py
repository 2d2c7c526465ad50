"""A file of a thin model whose code held widths makes that model again."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import StorageError, ThinningError
from nncfx.lc import DC
from nncfx.objectives import Minimize, macs
from nncfx.schemes import FilterPrune
from nncfx.search import SearchSettings
from nncfx.thinning import ThinResult, load_thinned, save_thinned, thin

IMAGES = torch.linspace(-1, 1, 4 * 3 * 12 * 12).reshape(4, 3, 12, 12).sin()


class Tutorial(nn.Module):
    """The network of PyTorch's tutorial in small: `view` is told the width."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.second(self.first(x).relu()).relu(), 2)
        return self.last(x.view(-1, 64))


def thinned(model: nn.Module) -> ThinResult:
    model = copy.deepcopy(model)
    model.last.weight.data.view(10, 16, 4)[:, ::2] = 0
    return thin(model, IMAGES)


def test_modules_that_became_graphs_are_made_again(tmp_path: Path) -> None:
    dense = Tutorial()
    result = thinned(dense)
    assert result.model.second.out_channels == 8
    save_thinned(tmp_path / "thin.nncfx", result.model, [result.recipe])
    again = load_thinned(tmp_path / "thin.nncfx", dense)
    assert torch.equal(again(IMAGES), result.model(IMAGES))
    assert dense.second.out_channels == 16


def test_what_thin_returns_and_copies_of_it_carry_what_their_file_needs(tmp_path: Path) -> None:
    result = thinned(Tutorial())
    nncfx.storage.save(tmp_path / "thin.nncfx", copy.deepcopy(result.model))
    dense = Tutorial()
    again = nncfx.storage.load(tmp_path / "thin.nncfx", dense)
    assert torch.equal(again(IMAGES), result.model(IMAGES))
    assert dense.second.out_channels == 16


@pytest.mark.parametrize(
    ("recipes", "error"), [("text", StorageError), ([1], ThinningError), ([{}], ThinningError)]
)
def test_recipes_that_are_none_are_refused(
    recipes: object, error: type[Exception], tmp_path: Path
) -> None:
    nncfx.storage.save(tmp_path / "bad", Tutorial(), metadata={"thin_recipes": recipes})
    with pytest.raises(error):
        load_thinned(tmp_path / "bad", Tutorial())


def test_a_run_saves_what_it_found_whatever_form_that_has(tmp_path: Path) -> None:
    model = Tutorial().eval()
    batches = [(IMAGES, model(IMAGES).argmax(1))]
    result = nncfx.Compressor(
        model=model,
        objective=Minimize(macs),
        eps=0.9,
        scheme=FilterPrune(),
        optimizer=DC(),
        trainloader=batches,
        valloader=batches,
        criterion=F.cross_entropy,
        runtime="torch",
        settings=SearchSettings(max_evaluations=3),
    ).run()
    assert result.recipes[0].forms
    saved = result.save(tmp_path / "small.nncfx")
    assert saved.evidence.file_accuracy == saved.evidence.compressed.accuracy
    again = load_thinned(tmp_path / "small.nncfx", model)
    assert torch.equal(again(IMAGES), result.model(IMAGES))


@pytest.mark.parametrize("is_graph", [True, False])
def test_signed_zeros_of_masked_weights_are_left_out(tmp_path: Path, *, is_graph: bool) -> None:
    dense = Tutorial()
    result = thinned(dense)
    model, recipes = (result.model, [result.recipe]) if is_graph else (dense, [])
    with torch.no_grad():
        model.last.weight.mul_(torch.rand(model.last.weight.shape).gt(0.9))
    with_signs = save_thinned(tmp_path / "a", model, recipes, signed_zeros=True)
    without = save_thinned(tmp_path / "b", model, recipes)
    assert without.size_bytes < with_signs.size_bytes
    weight = load_thinned(tmp_path / "b", Tutorial()).last.weight
    assert torch.equal(weight, model.last.weight)
    assert not torch.signbit(weight[weight == 0]).any()
