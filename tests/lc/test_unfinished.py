"""A killed recovery goes on and ends bitwise as if it had not been killed."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.lc import LC, RecoveryData
from nncfx.lc.unfinished import identity
from nncfx.schemes import Compose, Prune, Quantize, Scheme
from nncfx.schemes.composition import FunctionScheme
from small_models import is_same

RECIPE = LC(steps=6, lr=0.05, mb_iterations_per_l=8, mu_init=1e-2, recalibration_batches=3)
SCHEME = Compose([Prune(), Quantize("float16")])


class KilledError(BaseException):
    """Stands for a signal: nothing in the recovery may catch it."""


def shuffled(digits: RecoveryData) -> RecoveryData:
    """Return the digits behind a loader that draws its order from torch's global generator."""
    images = torch.cat([x for x, _ in digits.train])
    labels = torch.cat([y for _, y in digits.train])
    dataset = torch.utils.data.TensorDataset(images, labels)
    return replace(digits, train=torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True))


def killed_at(data: RecoveryData, call: int) -> RecoveryData:
    """Return `data` whose `validate` dies at its `call`-th call, from 1."""
    calls = iter(range(1, 1000))

    def validate(model: nn.Module) -> float:
        if next(calls) == call:
            raise KilledError
        return data.validate(model)

    return replace(data, validate=validate)


@pytest.mark.parametrize("call", [1, 2, 4, 6])
def test_killed_and_resumed_equals_uninterrupted_bitwise(
    call: int, dense: nn.Module, digits: RecoveryData, tmp_path: Path
) -> None:
    model, data = nn.Sequential(dense, nn.Dropout(0.1)), shuffled(digits)
    expected = RECIPE.recover(model, SCHEME, 0.8, data)
    recipe = replace(RECIPE, resume_folder=tmp_path)
    with pytest.raises(KilledError):
        recipe.recover(model, SCHEME, 0.8, killed_at(data, call))
    torch.rand(5)  # another process has another state of the generator
    result = recipe.recover(model, SCHEME, 0.8, data)
    assert result.history == expected.history
    assert result.metric == expected.metric
    assert is_same(result.compressed, expected.compressed)
    assert is_same(result.model, expected.model)
    assert [p.dtype for p in result.compressed.parameters()] == [
        p.dtype for p in expected.compressed.parameters()
    ]
    assert not list(tmp_path.iterdir())


def test_finished_iterations_are_not_run_again(toy: RecoveryData, tmp_path: Path) -> None:
    recipe = replace(RECIPE, resume_folder=tmp_path)
    model = nn.Linear(3, 2)
    with pytest.raises(KilledError):
        recipe.recover(model, SCHEME, 0.5, killed_at(toy, 5))
    calls = []
    counted = replace(toy, validate=lambda m: calls.append(1) or toy.validate(m))
    recipe.recover(model, SCHEME, 0.5, counted)
    assert len(calls) == 2  # iterations 4 and 5 of 0 to 5


@pytest.mark.parametrize("other", ["level", "model", "scheme", "settings"])
def test_another_recovery_does_not_take_the_state(
    other: str, toy: RecoveryData, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    recipe = replace(RECIPE, resume_folder=tmp_path)
    model, scheme, level = nn.Linear(3, 2), SCHEME, 0.5
    with pytest.raises(KilledError):
        recipe.recover(model, scheme, level, killed_at(toy, 3))
    changed: Scheme = scheme
    if other == "level":
        level = 0.3
    elif other == "model":
        model = nn.Linear(3, 2)
    elif other == "scheme":
        changed = Prune()
    else:
        recipe = replace(recipe, lr=0.04)
    expected = replace(recipe, resume_folder=None).recover(model, changed, level, toy)
    assert recipe.recover(model, changed, level, toy).history == expected.history
    assert len(list(tmp_path.iterdir())) == 1  # the first one can still go on


def test_functions_are_known_again_at_another_address() -> None:
    def scheme() -> Scheme:
        def mine(model: nn.Module, level: float) -> None:
            """Compress nothing."""

        return Compose([FunctionScheme(mine), Prune()])

    one, other = scheme(), scheme()
    assert repr(one) != repr(other)
    model = nn.Linear(2, 2)
    assert identity(model, {"scheme": one}) == identity(model, {"scheme": other})
    assert identity(model, {"scheme": one}) != identity(model, {"scheme": Prune()})


def test_a_damaged_state_is_refused_with_the_fix(toy: RecoveryData, tmp_path: Path) -> None:
    recipe = replace(RECIPE, resume_folder=tmp_path)
    model = nn.Linear(3, 2)
    with pytest.raises(KilledError):
        recipe.recover(model, SCHEME, 0.5, killed_at(toy, 3))
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StorageError, match=r"not the state of a recovery .* Delete it"):
        recipe.recover(model, SCHEME, 0.5, toy)


def test_a_folder_that_cannot_be_written_is_refused(toy: RecoveryData, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recipe = replace(RECIPE, resume_folder=tmp_path / "file")
    with pytest.raises(StorageError, match="Use a path that you may write to"):
        recipe.recover(nn.Linear(3, 2), SCHEME, 0.5, toy)
