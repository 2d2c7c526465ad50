"""Training that other libraries run goes on from their checkpoints to the same bits.

transformers' Trainer needs accelerate; neither it nor Lightning is among our own dependencies.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from language_models import bert
from nncfx.controllers import Controller

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

SPARSE = {
    "algorithm": "magnitude_sparsity",
    "sparsity_init": 0.1,
    "params": {
        "schedule": "multistep",
        "multistep_steps": [1],
        "multistep_sparsity_levels": [0.1, 0.8],
    },
}
ROUNDED = {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}}
CONFIG = {"compression": [SPARSE, ROUNDED]}


def same(one: nn.Module, other: nn.Module) -> bool:
    state, expected = one.state_dict(), other.state_dict()
    return state.keys() == expected.keys() and all(
        torch.equal(value, expected[name]) for name, value in state.items()
    )


def test_resnet20_resumes_where_it_was() -> None:
    zoo = pytest.importorskip("pytorchcv.models.resnet_cifar")

    def made() -> Any:  # noqa: ANN401 (a pair)
        torch.manual_seed(0)
        pruned = {"algorithm": "filter_pruning", "params": {"pruning_steps": 3}}
        items = {"compression": [SPARSE, pruned]}
        resnet = zoo.resnet20_cifar10()
        return nncfx.create_compressed_model(resnet, items, torch.ones(1, 3, 32, 32))

    controller, model = made()
    for _ in range(2):
        controller.scheduler.epoch_step()
    again, resumed = made()
    resumed.load_state_dict(model.state_dict())
    for one in (controller, again):
        one.scheduler.epoch_step()
    assert again["magnitude_sparsity"].level == pytest.approx(0.8, abs=0.01)
    assert same(resumed, model)


def test_the_trainer_of_transformers_resumes(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    transformers: Any = pytest.importorskip("transformers")
    base: Any = transformers.TrainerCallback
    tokens = torch.randint(0, 50, (16, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": one, "labels": int(one[0] > 25)} for one in tokens]

    class Schedule(base):  # type: ignore[misc]  # untyped
        def __init__(self, controller: Controller, last: int) -> None:
            self.scheduler, self.last = controller.scheduler, last

        def on_epoch_begin(self, *_: object, **__: object) -> None:
            self.scheduler.epoch_step()

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.scheduler.step()

        def on_epoch_end(self, _: object, state: Any, control: Any, **__: object) -> None:  # noqa: ANN401 (theirs)
            control.should_training_stop = state.epoch >= self.last

    def trained(folder: Path, last: int, resume: str | None = None) -> nn.Module:
        dense = bert("BertForSequenceClassification")
        controller, model = nncfx.create_compressed_model(dense, CONFIG, {"input_ids": tokens[:2]})
        arguments = transformers.TrainingArguments(
            str(folder), num_train_epochs=4, save_strategy="epoch", report_to=[], use_cpu=True,
            per_device_train_batch_size=8, disable_tqdm=True,
        )  # fmt: skip
        schedule = Schedule(controller, last)
        trainer = transformers.Trainer(model, arguments, train_dataset=data, callbacks=[schedule])
        trainer.train(resume_from_checkpoint=resume)
        assert controller.scheduler.current_epoch == last - 1
        return model

    expected = trained(tmp_path / "whole", 4)
    trained(tmp_path / "half", 2)
    assert same(trained(tmp_path / "half", 4, str(tmp_path / "half" / "checkpoint-4")), expected)


def test_lightning_resumes(tmp_path: Path) -> None:
    lightning: Any = pytest.importorskip("lightning")
    base: Any = lightning.LightningModule
    x = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())

    class Module(base):  # type: ignore[misc]  # untyped
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            dense = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
            made = nncfx.create_compressed_model(dense, CONFIG, torch.ones(1, 8))
            self.controller, self.model = made

        def on_train_epoch_start(self) -> None:
            self.controller.scheduler.epoch_step()

        def on_train_batch_start(self, *_: object) -> None:
            self.controller.scheduler.step()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:  # noqa: ANN401 (theirs)
            loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
            return loss + self.controller.loss()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def trained(epochs: int, file: Path, resume: Path | None = None) -> nn.Module:
        module = Module()
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=tmp_path,
        )  # fmt: skip
        loader = torch.utils.data.DataLoader(data, batch_size=8)
        trainer.fit(module, loader, ckpt_path=resume)
        trainer.save_checkpoint(file)
        return module

    expected = trained(4, tmp_path / "whole.ckpt")
    trained(2, tmp_path / "half.ckpt")
    assert same(trained(4, tmp_path / "end.ckpt", tmp_path / "half.ckpt"), expected)
