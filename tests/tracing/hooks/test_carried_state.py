"""Plain values that travel with a model's state_dict."""

import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nncfx.errors import StorageError
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, WeightSite
from nncfx.tracing.hooks.carried_state import CarriedState


class Counter:
    """Has a state of one number, or of any length."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.text = ""

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "text": self.text}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if set(state) != {"count", "text"}:
            raise StorageError("It is of another counter.")
        self.count = state["count"]


class Scaled(nn.Module):
    factor: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def carrying(count: int) -> tuple[NNCFNetwork, Counter, CarriedState]:
    model = wrap(nn.Sequential(nn.Linear(2, 2)), torch.ones(1, 2))
    model.nncf.register(Insertion(WeightSite("0", "weight"), Scaled(), 0, "a"))
    model.nncf.commit()
    counter = Counter(count)
    return model, counter, model.nncf.carry("a", counter)


KEY = "_nncf.a._extra_state"


def test_a_state_dict_brings_the_owners_state() -> None:
    model, _, _ = carrying(7)
    other, counter, _ = carrying(0)
    state = model.state_dict()
    assert json.loads(bytes(state[KEY].tolist())) == {"count": 7, "text": ""}
    assert other.load_state_dict(state) == ([], [])
    assert counter.count == 7


def test_the_state_follows_its_hooks_when_others_come_and_go() -> None:
    model, _, _ = carrying(7)
    model.nncf.register(Insertion(WeightSite("0", "bias"), Scaled(), 0, "b"))
    model.nncf.commit()
    assert KEY in model.state_dict()
    model.nncf.remove("a")
    assert KEY not in model.state_dict()
    assert "_nncf.b._extra_state" not in model.state_dict()


def test_a_model_without_an_owner_reads_over_the_state() -> None:
    model, _, _ = carrying(7)
    other = copy.deepcopy(model)
    assert other.load_state_dict(model.state_dict()) == ([], [])


def test_a_copy_of_the_model_alone_carries_a_blank() -> None:
    """Its owner would go on with the original, and the copy would tell what holds no more."""
    model, counter, _ = carrying(7)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 (our own)
        blank = other.state_dict()
        assert bytes(blank[KEY].tolist()).strip() == b""
        counter.count = 8
        assert model.load_state_dict(blank) == ([], [])
        assert counter.count == 8


def test_states_of_a_model_and_its_copy_agree_entry_by_entry() -> None:
    """Averages such as timm's pair the values of both, in their order (ModelEmaV3)."""
    model, _, _ = carrying(7)
    own, copied = model.state_dict(), copy.deepcopy(model).state_dict()
    assert list(own) == list(copied)
    assert [one.shape for one in own.values()] == [one.shape for one in copied.values()]


def test_the_length_stays_while_the_state_grows_a_little() -> None:
    """Averages of weights copy the tensors of one state_dict to those of another."""
    _, counter, carried = carrying(7)
    lengths = set()
    for counter.count in (0, 10, 10**9):
        lengths.add(len(carried.tensor()))
    assert lengths == {1024}
    counter.text = "long" * 600
    assert len(carried.tensor()) == 4096


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1.0, 2.0]),
        torch.ones(2, 2, dtype=torch.uint8),
        torch.tensor(list(b"{"), dtype=torch.uint8),
        torch.tensor([255, 255], dtype=torch.uint8),
        torch.tensor(list(b"[" * 100_000), dtype=torch.uint8),
        torch.tensor(list(b"3"), dtype=torch.uint8),
        torch.tensor(list(b'{"other": 1}'), dtype=torch.uint8),
        "text",
    ],
    ids=["floats", "matrix", "json", "utf8", "deep", "number", "other", "text"],
)
def test_a_state_that_is_none_is_refused_with_the_fix(value: object) -> None:
    model, counter, carried = carrying(7)
    with pytest.raises(StorageError, match="leave out of the state what ends in '_extra_state'"):
        carried.take(value)
    with pytest.raises(RuntimeError, match="Build the model with the config"):
        model.load_state_dict(dict(model.state_dict()) | {KEY: value})
    assert counter.count == 7


@pytest.mark.parametrize(("factor", "is_behind"), [(0.5, False), (0.25, True)])
def test_other_tensors_without_a_state_are_noticed(factor: float, is_behind: bool) -> None:
    model, counter, carried = carrying(7)
    state = dict(model.state_dict()) | {"_nncf.a.0|weight.factor": torch.tensor(factor)}
    kept = state.pop(KEY)
    assert model.load_state_dict(state) == ([], [])
    assert (carried.is_behind, counter.count) == (is_behind, 7)
    carried.take(kept)
    assert not carried.is_behind


def test_a_dense_state_is_no_state_of_hooks() -> None:
    model, _, carried = carrying(7)
    model.load_state_dict(nn.Sequential(nn.Linear(2, 2)).state_dict(), strict=False)
    assert not carried.is_behind
