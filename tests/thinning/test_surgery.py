"""A copy without some entries has the sizes that its tensors say."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from nncfx.thinning.surgery import copy_without, narrow_widths, sized_on_the_way


def test_a_tensor_can_lose_entries_along_several_axes() -> None:
    model = nn.Linear(3, 4)
    gone = {("weight", 0): np.array([1]), ("weight", 1): np.array([0, 2]), ("bias", 0): [1]}
    copied, sizes = copy_without(model, gone)
    assert torch.equal(copied.weight, model.weight[[0, 2, 3]][:, [1]])
    assert torch.equal(copied.bias, model.bias[[0, 2, 3]])
    assert sizes == {"": {"out_features": 3, "in_features": 1}}


def test_an_embedding_loses_columns() -> None:
    model = nn.Embedding(5, 4)
    copied, sizes = copy_without(model, {("weight", 1): np.array([0, 3])})
    assert torch.equal(copied.weight, model.weight[:, [1, 2]])
    assert sizes == {"": {"embedding_dim": 2}}


def test_buffers_are_cut_and_stay_buffers() -> None:
    model = nn.BatchNorm1d(3, affine=False)
    gone = {("running_mean", 0): np.array([0]), ("running_var", 0): np.array([0])}
    copied, sizes = copy_without(model, gone)
    assert list(copied.state_dict()) == list(model.state_dict())
    assert [len(buffer) for buffer in (copied.running_mean, copied.running_var)] == [2, 2]
    assert list(copied.parameters()) == []
    assert sizes == {"": {"num_features": 2}}


def test_groups_of_a_convolution_shrink_with_its_rows() -> None:
    model = nn.Conv2d(6, 9, 1, groups=3)
    gone = np.array([3, 4, 5])
    copied, sizes = copy_without(model, {("weight", 0): gone, ("bias", 0): gone})
    assert sizes == {"": {"out_channels": 6, "in_channels": 4, "groups": 2}}
    assert copied(torch.zeros(1, 4, 2, 2)).shape == (1, 6, 2, 2)


def test_gradients_do_not_come_along_to_a_cut_parameter() -> None:
    model = nn.Linear(3, 4, bias=False)
    model.weight.grad = torch.ones(4, 3)
    copied, _ = copy_without(model, {("weight", 0): np.array([0])})
    assert copied.weight.grad is None
    assert model.weight.grad.shape == (4, 3)


def test_a_parameter_of_the_users_own_module_is_cut() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.arange(3.0))

    copied, sizes = copy_without(Scale(), {("scale", 0): np.array([1])})
    assert copied.scale.tolist() == [0.0, 2.0]
    assert sizes == {}


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("batch", [(2,), ()], ids=["batch", "single"])
def test_a_norm_without_tensors_learns_its_width_from_the_forward(
    axes: int, batch: tuple[int, ...]
) -> None:
    kind = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)[axes - 1]
    model = nn.Sequential(kind(6))
    sizes: dict[str, dict[str, int]] = {}
    with sized_on_the_way(model, sizes):
        model(torch.zeros(*batch, 3, *[4, 5, 7][:axes]))
    assert sizes == {"0": {"num_features": 3}}
    assert model[0].num_features == 3
    assert not model[0]._forward_pre_hooks


def test_a_group_norm_without_tensors_learns_its_width_too() -> None:
    model = nn.GroupNorm(2, 8, affine=False)
    sizes: dict[str, dict[str, int]] = {}
    with sized_on_the_way(model, sizes):
        model(torch.zeros(3, 6, 5))
    assert sizes == {"": {"num_channels": 6}}


def test_integers_that_modules_keep_fall_unless_a_tensor_has_set_them() -> None:
    model = nn.Sequential(nn.Unflatten(1, (2, 4)), nn.Linear(4, 3))
    model[0].width = 8
    sizes = {"1": {"in_features": 4}}
    narrow_widths(model, {("0", "width"): 3, ("0", "dim"): 0, ("1", "in_features"): 2}, sizes)
    assert (model[0].width, model[0].dim, model[1].in_features) == (5, 1, 4)
    assert sizes == {"0": {"width": 5}, "1": {"in_features": 4}}


def test_a_module_whose_weight_is_computed_from_others_gets_their_size() -> None:
    model = parametrizations.weight_norm(nn.Linear(3, 4, bias=False))
    name = "parametrizations.weight.original"
    gone = np.array([1])
    copied, sizes = copy_without(model, {(f"{name}0", 0): gone, (f"{name}1", 0): gone})
    assert sizes == {"": {"out_features": 3}}
    torch.testing.assert_close(copied.weight, model.weight[[0, 2, 3]])


def test_a_module_that_torch_prunes_gets_the_size_of_what_its_mask_is_on() -> None:
    model = prune.l1_unstructured(nn.Linear(3, 4), "weight", 0.5)
    gone = {(name, 0): np.array([1]) for name in ("weight_orig", "weight_mask", "bias")}
    assert copy_without(model, gone)[1] == {"": {"out_features": 3}}


def test_groups_of_a_transposed_convolution_shrink_with_its_input_rows() -> None:
    """Rows of a transposed weight are inputs; its columns are the outputs of one group."""
    model = nn.ConvTranspose2d(6, 9, 1, groups=3)
    inputs, outputs = np.array([2, 3]), np.array([3, 4, 5])
    copied, sizes = copy_without(model, {("weight", 0): inputs, ("bias", 0): outputs})
    assert sizes == {"": {"in_channels": 4, "out_channels": 6, "groups": 2}}
    x = torch.randn(1, 4, 2, 2)
    left = [0, 1, 4, 5]
    whole = torch.zeros(1, 6, 2, 2).index_copy(1, torch.tensor(left), x)
    kept = model(whole)[:, [0, 1, 2, 6, 7, 8]]
    assert torch.allclose(copied(x), kept, atol=1e-6)


def test_what_a_module_keeps_for_evaluation_is_forgotten_and_modes_stay() -> None:
    """A module that merges its weights for evaluation merges them anew after surgery."""

    class Merged(nn.Linear):
        merged: torch.Tensor | None = None

        def train(self, mode: bool = True) -> "Merged":
            self.merged = None if mode else self.weight.detach() * 2
            return super().train(mode)

    model = nn.Sequential(Merged(3, 4), nn.Dropout()).eval()
    model[1].train()
    copied, _ = copy_without(model, {("0.weight", 0): np.array([0]), ("0.bias", 0): np.array([0])})
    assert copied[0].merged is None
    assert [module.training for module in copied.modules()] == [False, False, True]
    sole, _ = copy_without(model[0], {("weight", 0): np.array([0]), ("bias", 0): np.array([0])})
    assert sole.merged is None
