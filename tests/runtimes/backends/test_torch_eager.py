"""PyTorch eager: eval mode while the session is open, and the process left as it was."""

import pytest
import torch
from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.runtimes import BuildOptions
from nncfx.runtimes.backends.torch_eager import TorchEager


def test_a_model_in_training_infers_and_gets_its_mode_back() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(3)).train()
    model[1].eval()
    with TorchEager().build(model, BuildOptions()) as session:
        session.run(torch.ones(4, 3))
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]
    assert model[1].num_batches_tracked == 0


def test_the_threads_of_the_process_are_left_as_they_were() -> None:
    seen = []

    class Spy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(torch.get_num_threads())
            return x

    before = torch.get_num_threads()
    with TorchEager().build(Spy(), BuildOptions(threads=before + 1)) as session:
        session.run(torch.ones(1))
    assert (seen, torch.get_num_threads()) == ([before + 1], before)


def test_nested_outputs_are_flattened() -> None:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, list[torch.Tensor]]:
            return {"a": [x, x + 1]}

    with TorchEager().build(Pair(), BuildOptions()) as session:
        assert [output.tolist() for output in session.run(torch.zeros(1))] == [[0.0], [1.0]]


def test_what_it_has_not_is_refused() -> None:
    with pytest.raises(RuntimeFailure, match="neither a profile nor settings"):
        TorchEager().build(nn.ReLU(), BuildOptions(profile=True))
