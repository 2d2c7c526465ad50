"""The sizes of torch.nn modules, read and set together."""

import copy

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from nncfx.errors import StorageError
from nncfx.storage.models.module_sizes import SIZE_ATTRIBUTES, apply_sizes, read_sizes

MODULES = {
    nn.Linear: lambda n: nn.Linear(n, 2 * n),
    nn.Bilinear: lambda n: nn.Bilinear(n, 2 * n, 3),
    nn.Conv1d: lambda n: nn.Conv1d(n, 2 * n, 3, groups=n),
    nn.Conv2d: lambda n: nn.Conv2d(2 * n, 4 * n, 3, groups=2),
    nn.Conv3d: lambda n: nn.Conv3d(n, 2 * n, 1),
    nn.ConvTranspose1d: lambda n: nn.ConvTranspose1d(n, 2 * n, 3, groups=n),
    nn.ConvTranspose2d: lambda n: nn.ConvTranspose2d(2 * n, 4 * n, 3, groups=2),
    nn.ConvTranspose3d: lambda n: nn.ConvTranspose3d(n, 2 * n, 1),
    nn.BatchNorm1d: nn.BatchNorm1d,
    nn.BatchNorm2d: nn.BatchNorm2d,
    nn.BatchNorm3d: nn.BatchNorm3d,
    nn.SyncBatchNorm: nn.SyncBatchNorm,
    nn.InstanceNorm1d: lambda n: nn.InstanceNorm1d(n, affine=True, track_running_stats=True),
    nn.InstanceNorm2d: lambda n: nn.InstanceNorm2d(n, affine=True),
    nn.InstanceNorm3d: lambda n: nn.InstanceNorm3d(n, affine=True),
    nn.GroupNorm: lambda n: nn.GroupNorm(n, 2 * n),
    nn.PReLU: nn.PReLU,
    nn.ChannelShuffle: nn.ChannelShuffle,
    nn.LayerNorm: lambda n: nn.LayerNorm((n, 3)),
    nn.RMSNorm: nn.RMSNorm,
    nn.Embedding: lambda n: nn.Embedding(7 * n, n),
    nn.EmbeddingBag: lambda n: nn.EmbeddingBag(7, n),
    nn.MultiheadAttention: lambda n: nn.MultiheadAttention(4 * n, 2 * n, kdim=n, vdim=2 * n),
    nn.LSTM: lambda n: nn.LSTM(n, 4 * n, num_layers=2, bidirectional=True, proj_size=n),
    nn.GRU: lambda n: nn.GRU(n, 4 * n, num_layers=2, bidirectional=True),
    nn.RNN: lambda n: nn.RNN(n, 2 * n),
    nn.LSTMCell: lambda n: nn.LSTMCell(n, 2 * n),
    nn.GRUCell: lambda n: nn.GRUCell(n, 2 * n),
    nn.RNNCell: lambda n: nn.RNNCell(n, 2 * n),
}


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in model.state_dict().items()}


def test_every_known_type_is_tested() -> None:
    assert set(MODULES) == set(SIZE_ATTRIBUTES)


@pytest.mark.parametrize("kind", MODULES)
def test_a_large_module_becomes_a_small_one(kind: type[nn.Module]) -> None:
    large, small = nn.Sequential(MODULES[kind](4)), nn.Sequential(MODULES[kind](2))
    apply_sizes(large, read_sizes(small), shapes(small))
    assert read_sizes(large) == read_sizes(small)
    assert shapes(large) == shapes(small)
    large.load_state_dict(small.state_dict())


@pytest.mark.parametrize("kind", MODULES)
def test_shapes_that_contradict_the_sizes_are_refused(kind: type[nn.Module]) -> None:
    large, small = MODULES[kind](4), MODULES[kind](2)
    wanted = shapes(small)
    for key in wanted:
        # the last dimension of a kernel, and those of other tensors, follow the module
        wrong = wanted | {key: tuple(max(0, size - 1) for size in wanted[key])}
        if wrong != wanted:
            with pytest.raises(StorageError):
                apply_sizes(large, read_sizes(small), wrong)


def test_a_shrunk_network_runs_and_equals_the_one_built_small() -> None:
    def network(width: int) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, width, 3),
            nn.BatchNorm2d(width),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, groups=width),
            nn.Flatten(),
            nn.Linear(width * 16, 5),
        ).eval()

    small, large = network(3), network(8)
    apply_sizes(large, read_sizes(small), shapes(small))
    large.load_state_dict(small.state_dict())
    inputs = torch.ones(2, 3, 8, 8)
    assert torch.equal(large(inputs), small(inputs))


def test_a_model_of_the_same_sizes_is_left_alone() -> None:
    model = nn.Linear(3, 2)
    before = copy.deepcopy(model.state_dict())
    model.weight.grad = torch.ones(2, 3)
    apply_sizes(model, read_sizes(model), shapes(model))
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())
    assert model.weight.grad is not None


def test_parameters_stay_the_same_objects_and_tied() -> None:
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
    model["b"].weight = model["a"].weight
    first = model["a"].weight
    small = {"in_features": 4, "out_features": 3}
    apply_sizes(
        model,
        {"a": small, "b": small},
        {"a.weight": (3, 4), "a.bias": (3,), "b.weight": (3, 4), "b.bias": (3,)},
    )
    assert model["a"].weight is model["b"].weight is first
    assert first.shape == (3, 4)


def test_a_subclass_has_the_sizes_of_its_base() -> None:
    class MyLinear(nn.Linear):
        pass

    assert read_sizes(MyLinear(2, 3)) == {"": {"in_features": 2, "out_features": 3}}


def test_lists_stand_for_tuples_as_json_reads_them() -> None:
    model = nn.LayerNorm((4, 3))
    apply_sizes(model, {"": {"normalized_shape": [2, 3]}}, {"weight": (2, 3), "bias": (2, 3)})
    assert model.normalized_shape == (2, 3)


LINEAR = {"in_features": 3, "out_features": 2}


@pytest.mark.parametrize(
    ("sizes", "wanted", "words"),
    [
        ({"0": {"in_features": 3}}, {}, "the model is of another class"),
        ({"0": LINEAR | {"training": 1}}, {}, "the model is of another class"),
        ({"1": {"inplace": 1}}, {}, "the model is of another class"),
        ({"O": LINEAR}, {}, "no module 'O'"),
        ({"0": LINEAR | {"out_features": -1}}, {}, "a size is an integer"),
        ({"0": LINEAR | {"out_features": True}}, {}, "a size is an integer"),
        ({"0": LINEAR | {"out_features": "2"}}, {}, "a size is an integer"),
        ({"0": LINEAR | {"out_features": 2**31}}, {}, "a size is an integer"),
        ({"0": LINEAR | {"out_features": [2]}}, {}, r"cannot be \(2,\)"),
        ({"0": LINEAR | {"out_features": 1}}, {}, "the sizes .* want"),
        ({}, {"0.weight": (1, 3)}, "the sizes .* want"),
        ({}, {"0.weight": (2, 4)}, "nowhere larger"),
        ({}, {"0.weight": (2,)}, "the same rank"),
        ({}, {"0.wieght": (2, 3)}, "Did you mean '0.weight'"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    sizes: dict[str, dict[str, object]], wanted: dict[str, tuple[int, ...]], words: str
) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(StorageError, match=words):
        apply_sizes(model, sizes, wanted)
    assert read_sizes(model) == {"0": LINEAR}
    assert all(torch.equal(model.state_dict()[key], value) for key, value in before.items())


def test_groups_that_do_not_divide_are_refused() -> None:
    model = nn.Conv2d(4, 4, 1, groups=2)
    sizes = {"": {"in_channels": 3, "out_channels": 4, "groups": 2}}
    with pytest.raises(StorageError, match="in_channels=3 does not divide into groups=2"):
        apply_sizes(model, sizes, {"weight": (4, 1, 1, 1)})


class Heads(nn.Module):
    """What code of the user keeps: integers of no torch.nn type, one of which counts calls."""

    def __init__(self, heads: int, calls: int = 0) -> None:
        super().__init__()
        self.projection = nn.Linear(8, 2 * heads)
        self.all_head_size, self.calls, self.axis = 2 * heads, calls, -1


def test_what_is_too_large_for_a_size_is_none() -> None:
    """As the seeds that a forward keeps to draw the same numbers again."""
    module = Heads(4, calls=2**63 - 1)
    assert read_sizes(module)[""] == {"all_head_size": 8}


def test_integers_of_the_users_modules_fall_and_never_rise() -> None:
    dense, thin = Heads(4, calls=2), Heads(3, calls=7)
    sizes = read_sizes(thin)
    assert sizes[""] == {"all_head_size": 6, "calls": 7}
    apply_sizes(dense, sizes, shapes(thin))
    assert (dense.all_head_size, dense.calls, dense.axis) == (6, 2, -1)
    dense.calls = None  # as what a forward counts and a fresh module does not know yet
    apply_sizes(dense, {"": {"all_head_size": 0, "calls": 7, "unknown": 3}}, {})
    assert (dense.all_head_size, dense.calls) == (6, None)
    assert not hasattr(dense, "unknown")


def test_a_part_that_was_wrapped_for_checkpoints_is_named_with_the_fix() -> None:
    wrapped = nn.Sequential(checkpoint_wrapper(nn.Linear(2, 2)), nn.ReLU())
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    told = r"'0' was in torch's checkpoint_wrapper .* wrap it, too"
    with pytest.raises(StorageError, match=told):
        apply_sizes(plain, read_sizes(wrapped), {})
