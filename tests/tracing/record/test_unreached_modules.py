"""What no example reaches is known, and so is whether training may take another path."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.channels import analyze_channels
from nncfx.tracing.record.unreached_modules import branches_on_training

VECTOR = torch.ones(2, 4)


class Net(nn.Module):
    """Has a head for training, one behind a flag, and one that nothing calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 8)
        self.inner = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 8))
        self.trained, self.flagged = nn.Linear(8, 2), nn.ModuleList([nn.Linear(8, 2)])
        self.unused, self.last = nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x: Tensor, flag: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        x = self.inner(self.second(self.first(x).relu()).relu())
        y: Tensor = self.last(x)
        if self.training:
            return y, self.trained(x)
        return (y, self.flagged[0](x)) if flag else y


class Plain(nn.Module):
    """Hands the flag on, inside and outside of functions of torch."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5, self.training)


def test_a_head_for_training_is_followed_and_one_behind_a_flag_keeps_what_it_could_read() -> None:
    channels = analyze_channels(Net(), VECTOR)
    assert channels.unreached == ("flagged", "unused")
    assert [one.name for one in channels.prunable] == ["inner.0"]
    for name in ("first", "second", "inner.1"):
        assert "'flagged' could read them, and no example" in channels.fixed[name]
    readers = [one.parameter for one in channels.find("inner.1").members]
    assert {"trained.weight", "last.weight"} <= set(readers)


def test_a_further_input_reaches_the_branch_and_frees_the_rest() -> None:
    channels = analyze_channels(Net(), VECTOR, further_inputs=[(VECTOR, True)])
    assert channels.unreached == ("unused",)
    assert [one.name for one in channels.prunable] == ["first", "second", "inner.0", "inner.1"]
    readers = [one.parameter for one in channels.find("inner.1").members]
    assert "flagged.0.weight" in readers


def test_training_is_another_path_only_where_the_model_s_own_code_asks() -> None:
    assert branches_on_training(Net())
    assert branches_on_training(nn.Sequential(Plain()))
    assert not branches_on_training(nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)))


def test_the_analysis_leaves_statistics_of_norms_and_modes_as_they_are() -> None:
    class Normed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.trained = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))

    model = Normed().eval()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    assert "trained" not in analyze_channels(model, torch.rand(3, 4)).unreached
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    assert not model.training


def test_what_trains_only_with_larger_batches_keeps_its_channels() -> None:
    class Normed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.trained = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 2))

    channels = analyze_channels(Normed(), torch.ones(1, 4), further_inputs=[(VECTOR, True)])
    assert "trained" in channels.unreached
    assert "'trained' could read them" in channels.fixed["inner.1"]


class Policy(nn.Module):
    """Has a parameter that a loss reads, and no forward."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.mean = nn.Linear(4, 8), nn.Linear(8, 2)
        self.log_std = nn.Parameter(torch.zeros(1, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.mean(self.body(x).relu())


class Gambler(Policy):
    """Reads it in a method that an example does not reach."""

    def act(self, x: Tensor) -> Tensor:
        mean: Tensor = self(x)
        return mean + self.log_std.exp() * torch.randn_like(mean)


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(
    ("kind", "width", "is_free"),
    [(Policy, 2, True), (Policy, 8, True), (Gambler, 2, True), (Gambler, 8, False)],
)
def test_a_parameter_that_nothing_reads_keeps_what_code_could_join_with_it(
    kind: type[Policy], width: int, is_free: bool, is_wrapped: bool
) -> None:
    model = nncfx.wrap(kind(width), VECTOR) if is_wrapped else kind(width)
    channels = analyze_channels(model, VECTOR)
    assert channels.unreached == ("log_std",)
    assert [one.name for one in channels.prunable] == ["body"] * is_free
    assert not branches_on_training(model)
