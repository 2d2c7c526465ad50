"""Logits that a mask sets to the smallest float32, as question answering models do."""

import logging
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.errors import CompressionError

LOWEST = torch.finfo(torch.float32).min


class Spans(nn.Module):
    """Scores positions; padding gets the lowest score."""

    def __init__(self, masking: float) -> None:
        super().__init__()
        self.first, self.last, self.masking = nn.Linear(8, 16), nn.Linear(16, 3), masking

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.last(self.first(x).relu())
        return scores + (1 - mask)[:, :, None] * self.masking


def inputs() -> dict[str, Tensor]:
    torch.manual_seed(0)
    mask = torch.ones(4, 6, dtype=torch.long)
    mask[2:, 4:] = 0
    return {"x": torch.randn(4, 6, 8), "mask": mask}


@pytest.mark.parametrize("masking", [LOWEST, -1e9])
def test_scores_beside_masked_ones_keep_their_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, masking: float
) -> None:
    given = inputs()
    model = Spans(masking).eval()
    with caplog.at_level(logging.WARNING, "nncfx"):
        quantized = nncfx.quantize(model, [given])
    assert "Spans/__mul___0" in caplog.text
    expected, found = model(**given), quantized(**given)
    seen = given["mask"].bool()
    assert (found[seen] - expected[seen]).abs().max() < 0.05 * expected[seen].abs().max()
    assert found[~seen].max() < 0.9 * masking
    nncfx.save(tmp_path / "model.safetensors", quantized)
    _, loaded = nncfx.load(tmp_path / "model.safetensors", Spans(masking).eval())
    assert torch.equal(loaded(**given), found)


def test_a_mask_that_only_later_batches_have_counts() -> None:
    given = inputs()
    whole = {**given, "mask": torch.ones(4, 6, dtype=torch.long)}
    quantized = nncfx.quantize(Spans(LOWEST).eval(), [whole, given])
    assert not any("__add__" in str(one.site) for one in quantized.nncf.hooks)


def test_training_refuses_such_scores_until_they_are_ignored() -> None:
    given = inputs()
    config: dict[str, object] = {"algorithm": "quantization"}
    with pytest.raises(CompressionError, match=r"add Spans/__mul___0, Spans/__add___0 to ignored"):
        nncfx.create_compressed_model(
            Spans(LOWEST), {"compression": config}, given, calibration_batches=[given]
        )
    config["ignored_scopes"] = ["Spans/__mul___0", "Spans/__add___0"]
    _, model = nncfx.create_compressed_model(
        Spans(LOWEST), {"compression": config}, given, calibration_batches=[given]
    )
    loss = model(**given)[given["mask"].bool()].square().mean()
    loss.backward()
    assert all(one.grad is None or one.grad.isfinite().all() for one in model.parameters())
