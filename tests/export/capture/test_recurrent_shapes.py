"""Recurrent layers export with an open length, without a step of theirs being run."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._decomp import decompositions

from nncfx.export import export_onnx
from onnx_files import run_file

FORMS: list[tuple[type[nn.RNNBase], dict[str, int]]] = [
    (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"batch_first": False}),
]


class LastStep(nn.Module):
    """A score of the last step, and the states behind it."""

    def __init__(self, cell: type[nn.RNNBase], options: Mapping[str, int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = cell(8, 16, **{"batch_first": True, **options})
        self.fc = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        steps, state = self.rnn(x)
        last = steps[:, -1] if self.rnn.batch_first else steps[-1]
        return self.fc(last), state[0]


@pytest.mark.parametrize(("cell", "options"), FORMS)
def test_a_file_with_an_open_length_computes_what_the_model_does(
    tmp_path: Path,
    cell: type[nn.RNNBase],
    options: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = LastStep(cell, options).eval()
    monkeypatch.setattr(decompositions, "_rnn_helper", refused)
    path = export_onnx(
        model,
        tmp_path / "m.onnx",
        torch.randn(3, 7, 8),
        dynamic_batch=False,
        dynamic_axes={"x": {0: "first", 1: "second"}},
    ).path
    for shape in ((3, 7, 8), (2, 19, 8)):
        x = torch.randn(shape)
        for found, expected in zip(run_file(path, x), model(x), strict=True):
            torch.testing.assert_close(torch.from_numpy(found), expected)


def refused(*_: object) -> None:
    """Stand in for what runs a sequence step by step."""
    raise AssertionError("steps were run")
