"""Checkpoints: one file that brings a compressed model back, and says what does not fit."""

import base64
import copy
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

import nncfx
from nncfx import storage
from nncfx.controllers import Controller
from nncfx.errors import ArgumentError, StorageError, TracingError
from nncfx.network import NNCFNetwork, unwrap
from nncfx.quantization.weight_only import quantize_weights
from nncfx.storage.models.checkpoint_file import read_description
from nncfx.training.create import create_compressed_model
from nncfx.training.model_checkpoint import load, save
from small_models import Function

GOLDEN = Path(__file__).parent / "golden"
INPUTS = torch.ones(2, 6)
CONFIG = {
    "compression": [
        {"algorithm": "magnitude_sparsity", "params": {"sparsity_target_epoch": 3}},
        {"algorithm": "filter_pruning", "params": {"pruning_steps": 4}},
    ]
}


class Net(nn.Module):
    """Linear layers; `tied` has a weight that is `first`'s."""

    def __init__(self, hidden: int = 6) -> None:
        super().__init__()
        self.first = nn.Linear(6, hidden)
        self.tied = nn.Linear(6, hidden, bias=False)
        self.tied.weight = self.first.weight
        self.middle = nn.Linear(hidden, 8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.middle(self.first(x).relu() + self.tied(x)).relu())


def trained(epochs: int = 2) -> tuple[Controller, NNCFNetwork]:
    torch.manual_seed(0)
    controller, model = create_compressed_model(Net(), CONFIG, INPUTS)
    step(controller, model, epochs)
    return controller, model


def step(controller: Controller, model: nn.Module, epochs: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        (model(INPUTS).square().sum() + controller.loss()).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_training_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    controller, model = trained()
    save(tmp_path / "x.safetensors", model, controller)
    again, other = load(tmp_path / "x.safetensors", Net())
    step(controller, model, 2)
    step(again, other, 2)
    assert again.level == controller.level > 0
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_a_name_that_ends_in_nncfx_gets_such_a_file_of_a_finished_model(tmp_path: Path) -> None:
    inputs = torch.randn(4, 8)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).eval()
    fresh = copy.deepcopy(model)
    quantized = nncfx.quantize(model, [inputs])
    path = nncfx.save(tmp_path / "m.nncfx", quantized)
    assert storage.inspect(path)
    _, again = nncfx.load(path, fresh)
    assert torch.equal(again(inputs), quantized(inputs))


@pytest.mark.parametrize("shards", [True, False])
def test_a_name_that_ends_in_nncfx_is_refused_for_what_is_not_finished(
    tmp_path: Path, *, shards: bool
) -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller, model = nncfx.create_compressed_model(nn.Linear(4, 4), config, torch.randn(1, 4))
    what = "shards" if shards else "a training"
    with pytest.raises(ArgumentError, match=rf"to hold {what}.*such as 'm.safetensors'"):
        nncfx.save(tmp_path / "m.nncfx", model, None if shards else controller, shards=shards)
    assert list(tmp_path.iterdir()) == []


class Clones(TorchDispatchMode):
    """Counts the entries that operations copy."""

    entries = 0

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.clone.default:
            self.entries += args[0].numel()
        return func(*args, **(kwargs or {}))


def test_a_save_copies_no_weight(tmp_path: Path) -> None:
    with Clones() as clones:
        save(tmp_path / "a.safetensors", nn.Linear(100, 100))
    assert clones.entries == 0


def test_tensors_in_the_memory_of_others_are_written_as_they_are(tmp_path: Path) -> None:
    def made(values: Tensor) -> nn.Module:
        model = nn.Linear(2, 2)
        parts = {"whole": values, "turned": values.T, "flat": values.view(-1), "part": values[1:]}
        for name, one in (parts | {"wide": values[:1, :1].expand(3, 3)}).items():
            model.register_buffer(name, one)
        return model

    model = made(torch.randn(4, 5))
    save(tmp_path / "a.safetensors", model)
    fresh = nn.Linear(2, 2)
    for name, one in model.named_buffers():
        fresh.register_buffer(name, torch.zeros(one.shape))
    read = load(tmp_path / "a.safetensors", fresh)[1].state_dict()
    assert all(torch.equal(read[name], one) for name, one in model.state_dict().items())


def test_shared_weights_are_written_once_and_stay_shared(tmp_path: Path) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    with safe_open(path, framework="pt") as file:
        assert not {"first.weight", "tied.weight"} <= set(file.keys())
    _, other = load(path, Net())
    parameters = dict(other.named_parameters(remove_duplicate=False))
    assert parameters["first.weight"] is parameters["tied.weight"]


class Readers(nn.Module):
    """Query, key and value read one tensor, as in attention."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.query(x) @ self.key(x).mT, -1) @ self.value(x)


def test_files_that_name_a_tensor_once_for_each_site_are_read() -> None:
    """They are of commit 23f3aa4, whose history holds golden/make_several_names.py."""
    path = GOLDEN / "several_names.safetensors"
    kept = load_file(path)
    inputs = "_nncf.quantization.Readers/Linear[{}]/linear_0|INPUT0.step"
    _, model = load(path, Readers())
    state = model.state_dict()
    assert torch.equal(state[inputs.format("query")], kept[inputs.format("query")])
    assert inputs.format("key") not in state
    batch = torch.randn(2, 3, 4)
    expected = model(batch)
    for hook in model.nncf.hooks:
        hook.hook.step.fill_(1.0)
    assert not torch.equal(model(batch), expected)
    storage.load(GOLDEN / "several_names.nncfx", model)
    assert torch.equal(model(batch), expected)


def test_no_value_of_the_example_inputs_is_written(tmp_path: Path) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    with safe_open(path, framework="pt") as file:
        text = file.metadata()["nncfx"]
    assert json.loads(text)["example_inputs"] == {
        "kind": "tensor",
        "shape": [2, 6],
        "dtype": "float32",
    }


class Recommender(nn.Module):
    """Takes rows of a table as columns of floats, as libraries for click-through rates do."""

    def __init__(self, rows: int = 10) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(rows, 4), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([self.table(x[:, 0].long()), x[:, 1:]], 1))


def test_a_model_that_noise_leads_astray_is_loaded_without_inputs(tmp_path: Path) -> None:
    x = torch.tensor([[3.0, 0.2], [9.0, -0.1], [0.0, 0.4]])
    config = {"compression": {"algorithm": "quantization"}}
    controller, model = create_compressed_model(Recommender(), config, x, calibration_batches=[x])
    path = save(tmp_path / "m", model.eval(), controller)
    assert torch.equal(load(path, Recommender())[1].eval()(x), model(x))
    small = nncfx.quantize(Recommender(1), [torch.zeros(3, 2)])
    path = save(tmp_path / "small", small)
    with pytest.raises(TracingError, match="file: if it is of another model, take that one"):
        load(path, Recommender(1))
    again = load(path, Recommender(1), torch.zeros(3, 2))[1]
    assert torch.equal(again(torch.zeros(3, 2)), small(torch.zeros(3, 2)))


class Pooled(nn.Module):
    """Takes the mean over the tokens that are no padding, 1 here."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        seen = (tokens != 1).float().unsqueeze(-1)
        return self.head((self.table(tokens) * seen).sum(1) / seen.sum(1))


def test_no_range_is_taken_from_the_inputs_that_are_made_to_load_a_file(tmp_path: Path) -> None:
    tokens = torch.tensor([[2, 5, 1], [8, 3, 4]])
    config = {"compression": {"algorithm": "quantization"}}
    controller, model = create_compressed_model(
        Pooled(), config, tokens, calibration_batches=[tokens]
    )
    path = save(tmp_path / "x.safetensors", model.eval(), controller)
    # made of the recorded shape, all tokens are 1, and their mean is 0 / 0
    assert torch.equal(load(path, Pooled())[1].eval()(tokens), model(tokens))


class Loop(nn.Module):
    """Takes as many steps as the first number says, and one, as adaptive solvers do."""

    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for _ in range(1 + int(x[0, 0])):
            y = self.step(y).tanh()
        return y


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_forward_whose_length_depends_on_values_is_told(
    tmp_path: Path, *, is_finished: bool
) -> None:
    x = torch.tensor([[8.0, 0.1, 0.2]])
    config = {"compression": {"algorithm": "quantization"}}
    controller, model = create_compressed_model(Loop(), config, x, calibration_batches=[x])
    path = save(
        tmp_path / "x",
        controller.strip() if is_finished else model.eval(),
        None if is_finished else controller,
    )
    with pytest.raises(
        StorageError, match=r"depends on values.*pass the example_inputs used then"
    ):
        load(path, Loop())
    assert torch.equal(load(path, Loop(), x)[1].eval()(x), model.eval()(x))


def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    before = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        message = "disk full"
        raise OSError(message)

    monkeypatch.setattr("nncfx.training.model_checkpoint.save_file", full)
    with pytest.raises(StorageError, match="disk full"):
        save(path, model, controller)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_of_another_size_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    other = Net(hidden=5)
    before = {name: one.clone() for name, one in other.state_dict().items()}
    with pytest.raises(StorageError) as caught:
        load(path, other)
    assert "first.weight (6, 6) in the file, (5, 6) in the model" in str(caught.value)
    assert type(other) is Net
    assert all(torch.equal(one, before[name]) for name, one in other.state_dict().items())


def test_missing_and_unexpected_tensors_are_listed(tmp_path: Path) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors["alien"] = tensors.pop("last.bias")
    save_file(tensors, path, metadata=metadata)
    with pytest.raises(StorageError) as caught:
        load(path, Net())
    assert "missing in the file: last.bias" in str(caught.value)
    assert "unexpected: alien" in str(caught.value)
    assert "matched: " in str(caught.value)
    assert "pass the example_inputs used then" in str(caught.value)


def test_both_kinds_of_files_are_loaded_and_the_other_reader_names_this_one(
    tmp_path: Path,
) -> None:
    container, checkpoint = tmp_path / "small.nncfx", tmp_path / "x.safetensors"
    nncfx.storage.save(container, Net())
    controller, network = trained()
    save(checkpoint, network, controller)
    again, model = load(container, Net)
    assert again.configs == ()
    assert model(INPUTS).shape == (2, 3)
    with pytest.raises(StorageError, match=r"x.safetensors.*which nncfx\.load reads"):
        nncfx.storage.load(checkpoint, Net())


def test_a_training_is_loaded_with_one_copy_of_its_weights(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(400, 400), nn.Linear(400, 400)
            self.last.weight, self.head = self.first.weight, nn.Linear(400, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.last(self.first(x).relu()))

    pruning = {"algorithm": "magnitude_sparsity", "target_scopes": ["{re}head"]}
    controller, model = nncfx.create_compressed_model(
        Tied(), {"compression": pruning}, torch.ones(1, 400)
    )
    save(tmp_path / "x", model, controller)
    fresh = Tied()
    with Clones() as clones:
        _, again = load(tmp_path / "x", fresh)
    assert clones.entries < 1.5 * fresh.first.weight.numel()
    assert torch.equal(again.first.weight, model.first.weight)


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.zeros(2, dtype=torch.complex128),
        lambda: torch.zeros(2, dtype=torch.uint8).view(torch.float8_e8m0fnu),
    ],
)
def test_a_buffer_that_no_file_holds_is_refused_when_it_is_saved(
    made: Callable[[], torch.Tensor], tmp_path: Path
) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("edges", made())
    with pytest.raises(StorageError, match=r"'edges' .* cannot be stored; .*persistent=False"):
        save(tmp_path / "a.safetensors", model)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        load(tmp_path / "none", Net())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 64])
def test_a_file_of_another_kind_is_a_storage_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(
        StorageError, match="checkpoint: it does not begin with the signature of a"
    ):
        load(tmp_path / "x", Net())


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (None, "not a checkpoint of nncfx"),
        ({"version": 4}, "x' has version 4; this nncfx .* reads version 3"),
        ({"version": 4, "tables": {"in": "a new form"}}, "x' has version 4; .* reads version 3"),
        ({"version": 1, "config": 3, "shared": {}}, "is damaged"),
    ],
)
def test_a_description_that_is_not_this_versions_is_refused(
    tmp_path: Path, description: dict[str, object] | None, message: str
) -> None:
    text = json.dumps({"format": "nncfx.checkpoint"} | (description or {}))
    save_file({"a": torch.ones(1)}, tmp_path / "x", metadata=description and {"nncfx": text})
    with pytest.raises(StorageError, match=message):
        load(tmp_path / "x", Net())


def test_a_file_that_may_not_be_read_is_not_called_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "x.safetensors", Net())

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)  # tests run as root, too, who may read all
        with pytest.raises(StorageError, match="Permission denied"):
            read_description(tmp_path / "x.safetensors")


def test_a_wrapped_model_is_refused(tmp_path: Path) -> None:
    controller, model = trained()
    path = save(tmp_path / "x.safetensors", model, controller)
    with pytest.raises(ArgumentError, match="wrapped already"):
        load(path, model)


def test_a_pair_that_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    controller, _ = trained()
    with pytest.raises(ArgumentError, match="not the one that the controller handles"):
        save(tmp_path / "x", trained()[1], controller)


def test_arguments_the_other_way_round_are_told(tmp_path: Path) -> None:
    model = nncfx.wrap(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    with pytest.raises(ArgumentError, match=r"not a module; the path is first"):
        nncfx.save(model, tmp_path / "model.pt")  # type: ignore[arg-type]  # that is the mistake


@pytest.mark.parametrize("name", ["training_1", "quantized_1", "folded_1"])
def test_files_of_version_1_are_loaded(name: str) -> None:
    net = type("Net", (Function,), {})(  # the name in the files
        lambda m, x: m.fc(m.norm(m.conv(x)).relu().mean((2, 3))),
        conv=nn.Conv2d(3, 4, 3, bias=False),
        norm=nn.BatchNorm2d(4),
        fc=nn.Linear(4, 2),
    )
    _, model = load(GOLDEN / f"{name}.safetensors", net.eval())
    inputs = torch.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6)
    expected = json.loads((GOLDEN / "outputs_1.json").read_text())[name]
    # written on another processor, which may sum in another order
    torch.testing.assert_close(model.eval()(inputs), torch.tensor(expected))


def quantized() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64)).eval()
    return quantize_weights(model, bits=4, example_inputs=torch.ones(1, 64))


def test_a_finished_model_has_integers_and_one_in_training_its_floats(tmp_path: Path) -> None:
    model = quantized()
    weights = sum(one.numel() for one in model.parameters() if one.ndim > 1)
    values = {"finished": save(tmp_path / "a", model)}
    values["to train on"] = save(tmp_path / "b", model, integers=False)
    with safe_open(values["finished"], framework="pt") as file:
        # two weights of 4 bits in a byte
        assert sum(file.get_tensor(f"{i}.weight").numel() for i in (0, 2)) == weights / 2
    _, again = load(values["to train on"], lambda: unwrap(quantized()))
    assert torch.equal(raw(again, "0.weight"), raw(model, "0.weight"))
    _, again = load(values["finished"], lambda: unwrap(quantized()))
    assert not torch.equal(raw(again, "0.weight"), raw(model, "0.weight"))
    assert torch.equal(again(torch.ones(1, 64)), model(torch.ones(1, 64)))


class TwiceNamed(nn.Module):
    """A module under two names, as MONAI's DynUNet has all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.skip = nn.ModuleList([self.first])

    def forward(self, x: Tensor) -> Tensor:
        return self.skip[0](x)


@pytest.mark.parametrize("write", [save, storage.save])
def test_integers_of_a_shared_weight_are_written_once(
    tmp_path: Path, write: Callable[[Path, nn.Module], object]
) -> None:
    inputs = torch.linspace(-1, 1, 8 * 64).view(8, 64)
    model = nncfx.quantize(TwiceNamed().eval(), [inputs])
    write(tmp_path / "x", model)
    bytes_, weights = (tmp_path / "x").stat().st_size, 64 * 64
    assert bytes_ < 2 * weights + 4000  # a byte a weight; with the floats beside it five
    _, again = nncfx.load(tmp_path / "x", TwiceNamed().eval())
    assert torch.equal(again(inputs), model(inputs))
    assert again.get_parameter("skip.0.weight") is again.get_parameter("first.weight")


def raw(model: nn.Module, name: str) -> Tensor:
    return model.state_dict()[name]


def test_hooks_that_nobody_handles_are_refused_when_saved(tmp_path: Path) -> None:
    _, model = trained()
    with pytest.raises(ArgumentError, match=r"carries hooks of '\w+'.*Pass the controller"):
        save(tmp_path / "x", model)
    assert not list(tmp_path.iterdir())


def test_a_thin_model_is_trained_on_and_comes_back(tmp_path: Path) -> None:
    controller, model = trained()
    controller.level = 0.5
    thin = nncfx.thin(model).model
    item = {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}
    controller, network = create_compressed_model(thin, {"compression": item}, INPUTS)
    again, other = load(save(tmp_path / "x", network, controller), Net)
    assert torch.equal(other(INPUTS), network(INPUTS))
    assert again.state_dict() == controller.state_dict()


def test_the_controller_of_a_finished_model_does_nothing(tmp_path: Path) -> None:
    controller, model = load(save(tmp_path / "x", Net()), Net)
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    assert (float(controller.loss()), controller.level) == (0.0, 0.0)
    assert torch.equal(controller.strip()(INPUTS), model(INPUTS))
    save(tmp_path / "y", model, controller)


def test_a_model_on_meta_is_neither_saved_nor_loaded_into(tmp_path: Path) -> None:
    path, meta = tmp_path / "a.safetensors", nn.Linear(2, 2, device="meta")
    with pytest.raises(StorageError, match="Linear cannot be saved: 'weight' is on meta"):
        save(path, meta)
    assert list(tmp_path.iterdir()) == []
    save(path, nn.Linear(2, 2))
    with pytest.raises(StorageError, match="Linear cannot be loaded into: 'weight' is on meta"):
        load(path, meta)


def test_what_makes_no_module_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "x", Net())
    for wrong in (3, dict):
        with pytest.raises(ArgumentError, match=r"load takes a fresh model, or what makes one"):
            load(path, wrong)  # type: ignore[arg-type]  # that is the mistake


def test_zero_points_take_their_bits_and_files_in_which_they_took_bytes_are_read(
    tmp_path: Path,
) -> None:
    model = quantize_weights(
        nn.Sequential(nn.Linear(256, 256)), bits=4, example_inputs=torch.ones(1, 256)
    )
    path = save(tmp_path / "x", model)
    tensors, description = contents(path)
    zero = next(name for name in tensors if name.endswith(".zero"))
    count = 256 * 256 // description["structure"]["integers"]["0.weight"]["group"]
    assert tensors[zero].numel() == count // 2
    low, high = tensors[zero] & 15, tensors[zero] >> 4
    tensors[zero] = torch.stack([low, high], 1).reshape(description["packed"].pop(zero)["shape"])
    before = tmp_path / "before"
    save_file(tensors, before, metadata={"nncfx": json.dumps(description)})
    x = torch.randn(3, 256)
    for file in (path, before):
        assert torch.equal(load(file, nn.Sequential(nn.Linear(256, 256)))[1](x), model(x))


def contents(path: Path) -> tuple[dict[str, Tensor], Any]:
    return load_file(path), read_description(path)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("packed", "0.weight", "bits"), 1e400),
        (("packed", "0.weight", "bits"), 2),
        (("sizes", "0"), 3),
        (("sizes", "0"), [["weight"]]),
        (("structure",), []),
        (("structure", "integers"), 3),
        (("structure", "integers", "0.weight", "bits"), 1e400),
        (("structure", "integers", "0.weight", "dtype"), "I8"),
        (("structure", "integers", "0.weight", "group"), 2**70),
        (("structure", "integers", "0.weight", "scale"), "nothing"),
        (("structure", "quantizers"), {}),
        (("structure", "quantizers", 0, "shape"), [10**12]),
        (("structure", "quantizers", 0, "shape"), [-1]),
        (("structure", "quantizers", 0, "sites"), [["weight", 0, "weight"]]),
        (("structure", "folded"), {"0": "2"}),
        (("structure", "thin_recipes"), "text"),
        (("packed", "0.weight", "shape"), [10**12, 64]),
        (("shared",), {"x": "nothing"}),
    ],
    ids=str,
)
def test_a_finished_file_that_is_damaged_is_refused(
    place: tuple[str | int, ...], value: object, tmp_path: Path
) -> None:
    path = save(tmp_path / "x", quantized())
    tensors, description = contents(path)
    at = description
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    save_file(tensors, path, metadata={"nncfx": json.dumps(description)})
    fresh = unwrap(quantized())
    with pytest.raises(StorageError):
        load(path, fresh)
    assert type(fresh) is nn.Sequential


def test_a_file_of_version_2_has_all_in_one_text(tmp_path: Path) -> None:
    model = quantized()
    path = save(tmp_path / "x", model)
    tensors, description = contents(path)
    text = json.dumps(description | {"version": 2})
    save_file(tensors, tmp_path / "before", metadata={"nncfx": text})
    assert path.stat().st_size < (tmp_path / "before").stat().st_size
    again = load(tmp_path / "before", unwrap(quantized()))[1]
    assert torch.equal(again(torch.ones(1, 64)), model(torch.ones(1, 64)))


def test_the_same_model_makes_the_same_bytes(tmp_path: Path) -> None:
    model = quantized()
    files = {save(tmp_path / f"{n}", model).read_bytes() for n in range(8)}
    assert len(files) == 1


@pytest.mark.parametrize(
    "text",
    [
        "no base64!",
        base64.b64encode(b"no stream").decode(),
        base64.b64encode(zlib.compress(b"{}")[:-3]).decode(),
        base64.b64encode(zlib.compress(b"{}")).decode(),
        base64.b64encode(zlib.compress(b"[" * 10**6)).decode(),
        base64.b64encode(zlib.compress(bytes(10**8 + 1))).decode(),
        7,
    ],
    ids=["text", "stream", "cut", "empty", "deep", "bomb", "number"],
)
def test_tables_that_are_damaged_or_hostile_are_refused(text: object, tmp_path: Path) -> None:
    path = save(tmp_path / "x", quantized())
    with safe_open(path, framework="pt") as file:
        short = json.loads(file.metadata()["nncfx"]) | {"tables": text}
    save_file(load_file(path), path, metadata={"nncfx": json.dumps(short)})
    with pytest.raises(StorageError, match="cannot be read as a checkpoint"):
        load(path, unwrap(quantized()))


def test_tables_that_would_not_be_read_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nncfx.storage.models.checkpoint_file._LARGEST", 10)
    with pytest.raises(StorageError, match="at most 10 are read"):
        save(tmp_path / "x", quantized())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sign", [None, -1, 0.5])
def test_signs_of_grids_that_are_none_are_refused(sign: object, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = {"compression": {"algorithm": "quantization"}}
    x = torch.randn(4, 8)
    controller, model = create_compressed_model(
        nn.Sequential(nn.Linear(8, 2)), config, x, calibration_batches=[x]
    )
    path = save(tmp_path / "x", model, controller)
    tensors, description = contents(path)
    signs = description["controller"]["signed"]
    signs[next(iter(signs))] = sign
    save_file(tensors, path, metadata={"nncfx": json.dumps(description)})
    with pytest.raises(StorageError, match="signs in the state of 'quantization' is damaged"):
        load(path, nn.Sequential(nn.Linear(8, 2)))


@pytest.mark.parametrize("axis", [2**62, -1, 1])
def test_scales_along_an_axis_that_a_weight_does_not_have_are_refused(
    axis: int, tmp_path: Path
) -> None:
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    path = save(tmp_path / "x", nncfx.quantize(nn.Sequential(nn.Linear(8, 2)).eval(), [x]))
    tensors, description = contents(path)
    (spec,) = (
        one["spec"] for one in description["structure"]["quantizers"] if "axis" in one["spec"]
    )
    spec["axis"] = axis
    save_file(tensors, path, metadata={"nncfx": json.dumps(description)})
    with pytest.raises(StorageError, match=rf"2 scales along axis {axis} of '0.weight'"):
        load(path, nn.Sequential(nn.Linear(8, 2)))


@pytest.mark.parametrize("name", ["part.safetensors", "part.nncfx"])
def test_a_part_of_a_wrapped_model_is_refused(name: str, tmp_path: Path) -> None:
    whole = nncfx.quantize(nn.Sequential(nn.Sequential(nn.Linear(6, 6)), nn.ReLU()), [INPUTS])
    with pytest.raises(StorageError, match=r"part of a wrapped model.*Save the whole model"):
        save(tmp_path / name, whole[0])
    whole.nncf.remove("quantization")
    assert save(tmp_path / name, whole[0]).exists()
