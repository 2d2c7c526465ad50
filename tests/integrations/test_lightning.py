"""Compression in Lightning: what it adds, and what a checkpoint brings back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nncfx.controllers import CompressionStage
from nncfx.errors import ArgumentError, ConfigError

pl = pytest.importorskip("lightning.pytorch")

from nncfx.integrations.lightning import CompressionCallback  # noqa: E402 (may be missing)

# of Lightning itself and of what it recommends
pytestmark = pytest.mark.filterwarnings("ignore::Warning:lightning")
CONFIG = {
    "compression": [
        {
            "algorithm": "filter_pruning",
            "params": {
                "schedule": "exponential", "pruning_target": 0.5, "pruning_steps": 2,
                "prune_first_conv": True,
            },
        },
        {"algorithm": "quantization"},
        {"algorithm": "knowledge_distillation", "type": "softmax"},
    ]
}  # fmt: skip


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self.model(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 1e-2)


def loader() -> "DataLoader[tuple[Tensor, ...]]":
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), 16)


def fit(folder: Path, callback: CompressionCallback, **more: object) -> tuple[Net, Any]:
    kept = pl.callbacks.ModelCheckpoint(
        folder, monitor="val_loss", save_top_k=-1, filename="{epoch}"
    )
    trainer = pl.Trainer(
        max_epochs=4, callbacks=[callback, kept], default_root_dir=folder, accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = Net()
    trainer.fit(module, loader(), loader(), **more)
    return module, kept


def test_a_fit_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    first = CompressionCallback(CONFIG, loader())
    whole, kept = fit(tmp_path, first)
    assert first.controller.level == pytest.approx(0.5, abs=0.01)
    assert first.compressed()[0].out_features == 8
    second = CompressionCallback(CONFIG, loader())
    again, _ = fit(tmp_path, second, ckpt_path=tmp_path / "epoch=1.ckpt")
    expected, found = whole.state_dict(), again.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    assert kept.best_model_path.endswith(("epoch=1.ckpt", "epoch=2.ckpt", "epoch=3.ckpt"))


def test_a_fit_of_another_module_compresses_that_one(tmp_path: Path) -> None:
    callback = CompressionCallback(CONFIG, loader())
    first, _ = fit(tmp_path / "first", callback)
    controller = callback.controller
    second, _ = fit(tmp_path / "second", callback)
    assert controller.model is first.model
    assert callback.controller.model is second.model
    expected, found = first.state_dict(), second.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    assert callback.compressed()[0].out_features == 8


@pytest.mark.parametrize("step", [4, 8])  # of four an epoch
def test_a_fit_goes_on_from_the_last_step_of_an_epoch(tmp_path: Path, step: int) -> None:
    params = {
        "schedule": "multistep", "multistep_steps": [1, 2],
        "multistep_sparsity_levels": [0.1, 0.3, 0.7],
    }  # fmt: skip
    config = {"compression": {"algorithm": "magnitude_sparsity", "params": params}}

    def fitted(*callbacks: pl.Callback, **more: object) -> dict[str, Any]:
        compression = CompressionCallback(config, loader())
        trainer = pl.Trainer(
            max_epochs=3, callbacks=[compression, *callbacks], default_root_dir=tmp_path,
            accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        module = Net()
        trainer.fit(module, loader(), **more)
        assert compression.controller.level == 0.7
        return module.state_dict()

    kept = pl.callbacks.ModelCheckpoint(
        tmp_path, filename="{step}", every_n_train_steps=4, save_top_k=-1
    )
    expected = fitted(kept)
    found = fitted(ckpt_path=tmp_path / f"step={step}.ckpt")
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []


def test_metrics_are_those_of_the_compressed_module(tmp_path: Path) -> None:
    item = {"algorithm": "lc", "params": {"sparsity_target": 0.7, "mu_init": 1e-3}}
    callback = CompressionCallback({"compression": item}, loader())
    _, kept = fit(tmp_path, callback)
    small = callback.compressed()
    with torch.no_grad():
        losses = [float(nn.functional.cross_entropy(small(x), y)) for x, y in loader()]
    last = kept.best_k_models[str(tmp_path / "epoch=3.ckpt")]
    assert float(last) == pytest.approx(sum(losses) / len(losses), rel=1e-4)


def test_nothing_stops_early_while_the_level_rises(tmp_path: Path) -> None:
    rising = {"pruning_target": 0.5, "pruning_steps": 3, "schedule": "exponential"}
    item = {"algorithm": "neuron_pruning", "params": rising}
    callback = CompressionCallback({"compression": item}, loader())
    early = pl.callbacks.EarlyStopping("compression/level", patience=1, mode="min")
    trainer = pl.Trainer(
        max_epochs=9, callbacks=[early, callback], default_root_dir=tmp_path, accelerator="cpu",
        logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(Net(), loader(), loader())
    assert callback.controller.compression_stage() is CompressionStage.FULLY_COMPRESSED
    assert 3 < trainer.current_epoch < 7  # once it has got there, it does


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="nothing to trace"):
        CompressionCallback(CONFIG)
    with pytest.raises(ArgumentError, match=r"no module 'net'; it has model"):
        fit(tmp_path, CompressionCallback(CONFIG, loader(), module="net"))
    with pytest.raises(ArgumentError, match="has not begun"):
        CompressionCallback(CONFIG, loader()).compressed()


def test_a_fault_of_the_config_is_told_before_anything_is_fitted() -> None:
    with pytest.raises(ConfigError, match="filter_pruning"):
        CompressionCallback({"compression": {"algorithm": "filter_prunig"}}, loader())
