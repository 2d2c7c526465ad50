"""What a save wrote, a load brings back: all algorithms and pairs, thinned or not, all formats."""

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nncfx
from algorithm_items import ITEMS
from nncfx.controllers import Controller, registered_algorithms
from nncfx.errors import NNCFXError, StorageError
from nncfx.network import NNCFNetwork
from nncfx.thinning import load_thinned, save_thinned, thin
from nncfx.tracing import Insertion, PostSite, Priority

IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
TOKENS = torch.arange(12).reshape(2, 6)


class Net(nn.Module):
    """A residual block with batch norms, and linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.outer = nn.Conv2d(16, 8, 1)
        self.hidden, self.last = nn.Linear(8, 16), nn.Linear(16, 4)
        nn.init.uniform_(self.norm.running_mean)
        with torch.no_grad():
            self.inner.weight[..., 0, 0] = 0  # for const_sparsity to keep
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).relu()
        x = x + self.outer(self.norm(self.inner(x)).relu())
        return self.last(self.hidden(x.mean((2, 3))).relu())


class Encoder(nn.Module):
    """Tokens, one block of a transformer, and a head that shares the embedding's weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Embedding(16, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.out, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.head = nn.Linear(32, 16, bias=False)
        self.head.weight = self.tokens.weight
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = y = self.tokens(x)
        parts = [
            one(x).unflatten(-1, (-1, 8)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        ]
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(y + self.down(self.up(self.norm(x)).relu()))


INPUTS: Mapping[type[nn.Module], Tensor] = {Net: IMAGES, Encoder: TOKENS}

SINGLE = [(name,) for name in ITEMS]
FEW = [("filter_pruning", "quantization"), ("magnitude_sparsity", "quantization")]
PAIRS = list(itertools.combinations(ITEMS, 2))

Made = tuple[Controller, NNCFNetwork]


def made(kind: type[nn.Module], names: tuple[str, ...]) -> Made:
    """Return the model with these algorithms, trained for two steps, at their last level."""
    items = [{"algorithm": name, **ITEMS[name]} for name in names]
    try:
        pair = nncfx.create_compressed_model(kind(), {"compression": items}, INPUTS[kind])
    except NNCFXError as error:
        pytest.skip(f"{kind.__name__}: {error}")
    controller, model = pair
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(2):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        optimizer.zero_grad()
        (model.train()(INPUTS[kind]).square().mean() + controller.loss()).backward()
        optimizer.step()
    model.eval()
    return controller, model


def thinned(model: nn.Module, kind: type[nn.Module]) -> nn.Module:
    try:
        return thin(model, INPUTS[kind]).model.eval()
    except NNCFXError as error:
        pytest.skip(f"{kind.__name__} cannot be thinned: {error}")


def assert_back(
    model: nn.Module, kind: type[nn.Module], folder: Path, controller: Controller | None = None
) -> None:
    """Check that every save of `model` has its loads, with equal outputs."""
    expected = computed(model, kind)
    container = nncfx.storage.save(folder / "model.nncfx", model).path
    checkpoint = nncfx.save(folder / "model.safetensors", model, controller)
    own = save_thinned(folder / "thin.nncfx", model, ()).path
    found = {
        "container": nncfx.storage.load(container, kind()),
        "container, left alone": load_thinned(container, kind()),
        "thinned": load_thinned(own, kind()),
        "checkpoint": nncfx.load(checkpoint, kind())[1],
        "checkpoint of a class": nncfx.load(checkpoint, kind)[1],
        "container of a class": nncfx.load(container, kind)[1],
        "thinned of a class": nncfx.load(own, kind)[1],
    }
    for name, again in found.items():
        assert torch.equal(computed(again, kind), expected), name


def computed(model: nn.Module, kind: type[nn.Module]) -> Tensor:
    with torch.no_grad():
        return model.eval()(INPUTS[kind])


@pytest.mark.parametrize("kind", [Net, Encoder])
@pytest.mark.parametrize("names", [*SINGLE, *FEW], ids="+".join)
def test_a_model_comes_back_in_training_stripped_and_thinned(
    kind: type[nn.Module], names: tuple[str, ...], tmp_path: Path
) -> None:
    controller, model = made(kind, names)
    assert_back(model, kind, tmp_path, controller)
    again, _ = nncfx.load(tmp_path / "model.safetensors", kind)
    assert again.state_dict() == controller.state_dict()
    assert_back(controller.strip(), kind, tmp_path)
    assert_back(thinned(model, kind), kind, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Net, Encoder])
@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_every_pair_comes_back(
    kind: type[nn.Module], names: tuple[str, ...], tmp_path: Path
) -> None:
    def assert_loaded(path: Path, expected: Tensor) -> None:
        assert torch.equal(computed(nncfx.load(path, kind)[1], kind), expected)

    controller, model = made(kind, names)
    expected = computed(model, kind)
    assert_loaded(nncfx.save(tmp_path / "model.safetensors", model, controller), expected)
    assert_loaded(nncfx.storage.save(tmp_path / "model.nncfx", model).path, expected)
    stripped = controller.strip()
    expected = computed(stripped, kind)
    assert_loaded(nncfx.save(tmp_path / "stripped.safetensors", stripped), expected)
    small = thinned(model, kind)
    expected = computed(small, kind)
    assert_loaded(save_thinned(tmp_path / "thin.nncfx", small, ()).path, expected)


def test_no_algorithm_is_left_out() -> None:
    assert set(ITEMS) == set(registered_algorithms())


def test_a_wrapped_part_of_a_plain_model_is_refused_when_saved(tmp_path: Path) -> None:
    model = nn.Sequential(Net())
    nncfx.quantize(model[0], [IMAGES], inplace=True)
    for save in (nncfx.save, nncfx.storage.save):
        with pytest.raises(StorageError, match=r"'0' of this Sequential is wrapped.*that part by"):
            save(tmp_path / "model", model)
    assert not list(tmp_path.iterdir())


def test_hooks_on_activations_are_refused_when_a_finished_model_is_saved(tmp_path: Path) -> None:
    model = nncfx.wrap(Net(), IMAGES)
    site = PostSite("Net/Linear[hidden]/linear_0")
    model.nncf.register([Insertion(site, nn.Tanh(), Priority.DEFAULT, "tanh")])
    model.nncf.commit()
    with pytest.raises(StorageError, match=r"cannot be written as a finished model: .*Tanh"):
        nncfx.storage.save(tmp_path / "model", model)
    nncfx.quantize(model, [IMAGES], inplace=True)
    with pytest.raises(StorageError, match=r"'tanh' has a Tanh at"):
        nncfx.storage.save(tmp_path / "model", model)
    assert not list(tmp_path.iterdir())


def test_what_masks_make_of_weights_is_what_a_finished_file_holds(tmp_path: Path) -> None:
    controller, model = made(Net, ("magnitude_sparsity",))
    controller.level = 0.5
    again = nncfx.storage.load(nncfx.storage.save(tmp_path / "m", model).path, Net())
    assert type(again) is Net
    assert (again.hidden.weight == 0).float().mean() > 0.2
    assert torch.equal(again(IMAGES), model(IMAGES))


@pytest.mark.parametrize("names", [("quantization",), *FEW], ids="+".join)
def test_a_state_dict_fills_an_equally_compressed_model(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    _, model = made(Net, names)
    save_file(model.state_dict(), tmp_path / "state")
    _, other = made(Net, names)
    other.load_state_dict(load_file(tmp_path / "state"))
    assert torch.equal(other(IMAGES), model(IMAGES))


def test_an_equally_quantized_model_is_filled(tmp_path: Path) -> None:
    model = nncfx.quantize(Net(), [IMAGES])
    other = nncfx.quantize(Net(), [2 * IMAGES])
    nncfx.storage.load(nncfx.storage.save(tmp_path / "m", model).path, other)
    assert torch.equal(other(IMAGES), model(IMAGES))


@pytest.mark.parametrize("write", [nncfx.save, nncfx.storage.save])
def test_a_model_of_another_class_is_left_as_it_was(
    write: Callable[[Path, nn.Module], object], tmp_path: Path
) -> None:
    write(tmp_path / "m", nncfx.quantize(Net(), [IMAGES], target="vta"))
    other = Net()
    other.last = nn.Linear(16, 3)
    before = dict(other.state_dict(), output=other(IMAGES))
    with pytest.raises(StorageError):
        nncfx.load(tmp_path / "m", other)
    assert type(other) is Net
    assert isinstance(other.norm, nn.BatchNorm2d)
    after = dict(other.state_dict(), output=other(IMAGES))
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], one) for name, one in before.items())


class Scaled(nn.Embedding):
    """Computes more than an embedding, as BART's, so that no packed layer stands for it."""

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) * 2.0


class Tied(nn.Module):
    """Three owners of one table; a forward of embeddings never reads that of tokens."""

    def __init__(self, seed: int, own: str) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shared, self.unread = Scaled(12, 32), own
        setattr(self, own, Scaled(12, 32))
        self.head = nn.Linear(32, 12, bias=False)
        self.head.weight = self.get_submodule(own).weight = self.shared.weight  # type: ignore[assignment]

    def forward(self, ids: Tensor, embeds: Tensor | None = None) -> Tensor:
        if ids.dtype == torch.int32:
            return self.get_submodule(self.unread)(ids)
        return self.head(self.shared(ids) if embeds is None else embeds)


@pytest.mark.parametrize("own", ["before", "the_last"])  # of the names in a file
def test_a_weight_that_packing_split_comes_back(own: str, tmp_path: Path) -> None:
    packed = nncfx.quantization.quantize_weights(Tied(0, own).eval(), [TOKENS], bits=4, pack=True)
    path = nncfx.save(tmp_path / "m.safetensors", packed)
    _, again = nncfx.load(path, Tied(1, own).eval())
    assert torch.equal(again(TOKENS), packed(TOKENS))
    assert torch.equal(again(TOKENS.int()), packed(TOKENS.int()))


@pytest.mark.parametrize("name", ["odd.safetensors", "odd.nncfx"])
def test_tensors_lie_where_torch_puts_its_own(tmp_path: Path, name: str) -> None:
    """At other addresses, products differ in the last bit, and so do models that go on."""
    model = nn.Sequential(*[nn.Linear(odd, odd + 2) for odd in range(1, 21, 2)])
    nncfx.save(tmp_path / name, model)
    _, again = nncfx.load(tmp_path / name, model)
    assert {one.data_ptr() % 64 for one in again.parameters()} == {0}
