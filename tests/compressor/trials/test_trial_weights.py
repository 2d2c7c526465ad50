"""The weights of the trials."""

from pathlib import Path

import pytest
import torch

from nncfx.compressor.trials.trial_weights import TrialStates
from nncfx.errors import SearchError


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_state_comes_back_bit_for_bit_in_its_own_dtypes(tmp_path: Path, on_disk: bool) -> None:
    shared = torch.randn(3, 4)
    state = {"a": shared.half().t(), "b": shared, "c": shared, "n": torch.tensor(7)}
    folder = tmp_path / "weights" if on_disk else None
    states = TrialStates(folder)
    states.save("level-0.25", state)
    # A new process has nothing in memory.
    back = (TrialStates(folder) if on_disk else states).load("level-0.25")
    assert back.keys() == state.keys()
    for name, tensor in state.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def test_what_was_saved_does_not_follow_the_model() -> None:
    weight = torch.zeros(2)
    states = TrialStates(None)
    states.save("level-0.5", {"w": weight})
    weight += 1
    assert torch.equal(states.load("level-0.5")["w"], torch.zeros(2))


def test_missing_weights_are_an_error_that_tells_what_to_delete(tmp_path: Path) -> None:
    with pytest.raises(SearchError, match=r"level-0\.5.*compresses to them again"):
        TrialStates(tmp_path / "weights").load("level-0.5")


def test_a_damaged_file_is_an_error_too(tmp_path: Path) -> None:
    states = TrialStates(tmp_path)
    states.save("level-0.5", {"w": torch.zeros(100)})
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(SearchError, match="cannot be read"):
        states.load("level-0.5")


def test_a_level_never_tried_has_no_weights() -> None:
    with pytest.raises(SearchError, match=r"level-0\.25"):
        TrialStates(None).load("level-0.25")
