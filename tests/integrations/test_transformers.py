"""Compression in the Trainer of transformers: what it adds, and what a checkpoint brings back."""

from pathlib import Path

import pytest
import torch

import nncfx
from nncfx.errors import ArgumentError

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from nncfx.integrations.pretrained import save_pretrained  # noqa: E402 (may be missing)
from nncfx.integrations.transformers import TrainerCompression  # noqa: E402 (may be missing)

EPOCHS, BATCHES = 4, 4
SPARSITY = {
    "algorithm": "magnitude_sparsity",
    "sparsity_init": 0.0,
    "params": {
        "schedule": "polynomial", "power": 1, "sparsity_target": 0.6,
        "sparsity_target_epoch": 2, "sparsity_freeze_epoch": 3,
    },
}  # fmt: skip
ALL = [
    SPARSITY,
    {"algorithm": "quantization"},
    {"algorithm": "knowledge_distillation", "type": "softmax"},
]


def examples() -> list[dict[str, torch.Tensor]]:
    ids = torch.randint(0, 50, (64, 8), generator=torch.Generator().manual_seed(0))
    return [
        {"input_ids": one, "attention_mask": torch.ones_like(one), "labels": (one[0] > 25).long()}
        for one in ids
    ]


def trainer(folder: Path, **more: object) -> "transformers.Trainer":
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=8,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    arguments = {
        "num_train_epochs": EPOCHS, "per_device_train_batch_size": 16, "learning_rate": 2e-3,
        "eval_strategy": "epoch", "save_strategy": "epoch", "use_cpu": True, "report_to": [],
        "disable_tqdm": True, "logging_strategy": "no", "dataloader_pin_memory": False,
    }  # fmt: skip
    return transformers.Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=transformers.TrainingArguments(str(folder), **(arguments | more)),
        train_dataset=examples(),
        eval_dataset=examples()[:16],
    )


@pytest.mark.slow
def test_a_training_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = trainer(tmp_path)
    compression = TrainerCompression(whole, {"compression": ALL})
    whole.train()
    assert compression.controller.level == pytest.approx(0.6, abs=0.01)
    again = trainer(tmp_path)
    resumed = TrainerCompression(again, {"compression": ALL})
    again.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{2 * BATCHES}"))
    expected, found = whole.model.state_dict(), again.model.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    inputs = {name: one[None] for name, one in examples()[0].items() if name != "labels"}
    with torch.no_grad():
        logits = resumed.compressed()(**inputs).logits
        assert torch.equal(logits, whole.model.eval()(**inputs).logits)


class AdapterTrainer(transformers.Trainer):
    """Saves and loads as with a model of PEFT: what is trained beside the base, and no more."""

    def _save(self, output_dir: str | None = None, state_dict: object = None) -> None:
        del state_dict
        Path(str(output_dir)).mkdir(parents=True, exist_ok=True)
        torch.save(self.model.classifier.state_dict(), Path(str(output_dir)) / "adapter.pt")

    def _load_from_checkpoint(
        self, resume_from_checkpoint: str, model: torch.nn.Module | None = None
    ) -> None:
        del model
        found = torch.load(Path(resume_from_checkpoint) / "adapter.pt", weights_only=True)
        self.model.classifier.load_state_dict(found)

    def _load_best_model(self) -> None:
        AdapterTrainer._load_from_checkpoint(self, str(self.state.best_model_checkpoint))


def adapter_trainer(folder: Path, **more: object) -> AdapterTrainer:
    plain = trainer(folder, **more)
    plain.model.requires_grad_(requires_grad=False)
    plain.model.classifier.requires_grad_()
    plain.model.peft_config = {}
    return AdapterTrainer(
        model=plain.model,
        args=plain.args,
        train_dataset=plain.train_dataset,
        eval_dataset=plain.eval_dataset,
    )


@pytest.mark.slow
def test_a_training_of_an_adapter_goes_on_with_its_masks_and_quantizers(tmp_path: Path) -> None:
    whole = adapter_trainer(tmp_path)
    TrainerCompression(whole, {"compression": ALL[:2]})
    whole.train()
    again = adapter_trainer(tmp_path)
    TrainerCompression(again, {"compression": ALL[:2]})
    checkpoint = tmp_path / f"checkpoint-{2 * BATCHES}"
    again.train(resume_from_checkpoint=str(checkpoint))
    expected, found = whole.model.state_dict(), again.model.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    best = adapter_trainer(tmp_path / "best", load_best_model_at_end=True, num_train_epochs=6)
    TrainerCompression(best, {"compression": ALL[:2]})
    best.train()
    assert best.state.best_global_step < best.state.global_step
    kept = torch.load(Path(str(best.state.best_model_checkpoint)) / "compression.pt")
    found = best.model.state_dict()
    assert [name for name, one in kept.items() if not torch.equal(one, found[name])] == []
    (checkpoint / "compression.pt").unlink()
    third = adapter_trainer(tmp_path)
    TrainerCompression(third, {"compression": ALL[:2]})
    with pytest.raises(
        ArgumentError, match=r"has no compression.pt, and its other files lack \d+"
    ):
        third.train(resume_from_checkpoint=str(checkpoint))


def image_trainer(folder: Path, **more: object) -> "transformers.Trainer":
    plain = trainer(folder, **more)
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, num_labels=2,
    )  # fmt: skip
    images = torch.randn(64, 3, 8, 8)
    rows = [{"pixel_values": one, "labels": (one.mean() > 0).long()} for one in images]
    return transformers.Trainer(
        model=transformers.ViTForImageClassification(config),
        args=plain.args,
        train_dataset=rows,
        eval_dataset=rows[:16],
    )


@pytest.mark.slow
def test_a_model_whose_weights_are_renamed_on_disk_goes_on_with_the_same_bits(
    tmp_path: Path,
) -> None:
    whole = image_trainer(tmp_path)
    TrainerCompression(whole, {"compression": ALL[:2]})
    whole.train()
    again = image_trainer(tmp_path)
    TrainerCompression(again, {"compression": ALL[:2]})
    checkpoint = tmp_path / f"checkpoint-{2 * BATCHES}"
    again.train(resume_from_checkpoint=str(checkpoint))
    expected, found = whole.model.state_dict(), again.model.state_dict()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    (checkpoint / "compression.pt").unlink()
    third = image_trainer(tmp_path)
    TrainerCompression(third, {"compression": ALL[:2]})
    with pytest.raises(ArgumentError, match=r"lack \d+ tensors of the model.*other names"):
        third.train(resume_from_checkpoint=str(checkpoint))


def test_the_level_follows_the_epochs_and_the_loss_is_added(tmp_path: Path) -> None:
    class Levels:
        def __init__(self) -> None:
            self.seen: list[tuple[int, float]] = []

        def log(self, values: dict[str, float], step: int) -> None:
            self.seen.append((step, round(values["compression/level"], 3)))

        def close(self) -> None:
            self.seen.append((-1, 0.0))

    levels = Levels()
    made = trainer(tmp_path, eval_strategy="no", save_strategy="no", gradient_accumulation_steps=2)
    compression = TrainerCompression(made, {"compression": [SPARSITY, ALL[2]]}, tracker=levels)
    batch = {name: torch.stack([one[name] for one in examples()[:4]]) for name in examples()[0]}
    made.model.train()
    made.current_gradient_accumulation_steps = 2
    with torch.no_grad():
        plain = made.model(**batch).loss
        added = made.compute_loss(made.model, dict(batch)) - plain
    expected = compression.controller.loss().item()
    assert added.item() == pytest.approx(expected, rel=1e-4)
    made.model.eval()
    with torch.no_grad():
        assert torch.equal(made.compute_loss(made.model, dict(batch)), made.model(**batch).loss)
    made.train()
    # a line from 0 to 0.6 over two epochs, by hand; two steps an epoch, as two are accumulated
    assert levels.seen == [(0, 0.0), (2, 0.3), (4, 0.6), (6, 0.6), (8, 0.6), (-1, 0.0)]


def test_the_best_model_is_one_of_the_last_stage(tmp_path: Path) -> None:
    made = trainer(
        tmp_path, load_best_model_at_end=True, metric_for_best_model="loss",
        greater_is_better=False, learning_rate=1e-8,
    )  # fmt: skip
    compression = TrainerCompression(made, {"compression": SPARSITY})
    made.train()
    # nothing is learned, so that the first epoch, dense, has the lowest loss or is as good
    best = int(made.state.best_model_checkpoint.rpartition("-")[2])
    assert best > 2 * BATCHES
    assert compression.controller.level == pytest.approx(0.6, abs=0.01)


def test_nothing_stops_early_while_the_level_rises(tmp_path: Path) -> None:
    made = trainer(
        tmp_path, load_best_model_at_end=True, metric_for_best_model="loss",
        greater_is_better=False, learning_rate=1e-8,
    )  # fmt: skip
    made.add_callback(transformers.EarlyStoppingCallback(1))
    compression = TrainerCompression(made, {"compression": SPARSITY})
    made.train()
    # at the last level from the third epoch on, and stopped by the fourth, which is no better
    assert made.state.global_step == 4 * BATCHES
    assert compression.controller.level == pytest.approx(0.6, abs=0.01)


def test_metrics_are_those_of_the_compressed_model(tmp_path: Path) -> None:
    made = trainer(tmp_path, num_train_epochs=1, save_strategy="no")
    item = {"algorithm": "lc", "params": {"sparsity_target": 0.7, "mu_init": 1e-3}}
    compression = TrainerCompression(made, {"compression": item})
    made.train()
    batch = {name: torch.stack([one[name] for one in examples()[:16]]) for name in examples()[0]}
    with torch.no_grad():
        expected = compression.compressed()(**batch).loss.item()
    assert made.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    assert made.state.log_history[0]["eval_loss"] == pytest.approx(expected, rel=1e-4)


def test_parameters_of_algorithms_get_groups_of_their_own(tmp_path: Path) -> None:
    made = trainer(tmp_path, weight_decay=0.1)
    item = {"algorithm": "rb_sparsity", "compression_lr_multiplier": 5}
    compression = TrainerCompression(made, {"compression": item})
    optimizer = made.create_optimizer()
    scores = compression.controller.parameter_groups(lr=1.0)[1]["params"]
    groups = {id(one): group for group in optimizer.param_groups for one in group["params"]}
    assert {groups[id(one)]["lr"] for one in scores} == {5 * 2e-3}
    assert {groups[id(one)]["weight_decay"] for one in scores} == {0.0}
    assert sorted(groups) == sorted({id(one) for one in made.model.parameters()})
    with pytest.raises(ArgumentError, match="has its optimizer already"):
        TrainerCompression(made, {"compression": item})
    of_each_training = trainer(tmp_path)
    of_each_training.model_init = lambda: made.model
    with pytest.raises(ArgumentError, match="a new model by its model_init whenever it trains"):
        TrainerCompression(of_each_training, {"compression": item})


def test_what_was_trained_is_exported(tmp_path: Path) -> None:
    made = trainer(tmp_path, num_train_epochs=1, eval_strategy="no", save_strategy="no")
    compression = TrainerCompression(made, {"compression": {"algorithm": "quantization"}})
    made.train()
    file = nncfx.export_onnx(compression.compressed(), tmp_path / "m.onnx", dynamic_batch=False)
    assert nncfx.export.summarize_onnx(file).weight_bytes["int8"] > 1000


def test_what_was_trained_in_bfloat16_computes_in_float32_and_is_read_by_transformers(
    tmp_path: Path,
) -> None:
    made = trainer(tmp_path, num_train_epochs=1, eval_strategy="no", save_strategy="no", bf16=True)
    compression = TrainerCompression(made, {"compression": SPARSITY})
    made.train()
    small = compression.compressed()
    batch = {name: one[None] for name, one in examples()[0].items()}
    plain = transformers.BertForSequenceClassification(small.config).eval()
    plain.load_state_dict(small.state_dict())
    torch.testing.assert_close(small(**batch).logits, plain(**batch).logits, rtol=0, atol=0)
    assert save_pretrained(small, tmp_path / "small").name == "model.safetensors"
    # the Trainer's own is as it was, and can be saved so as well
    assert "forward" in vars(made.model)
    assert save_pretrained(made.model, tmp_path / "own").name == "model.safetensors"
    assert "forward" in vars(made.model)


def test_the_last_checkpoint_is_a_whole_one(tmp_path: Path) -> None:
    compression = TrainerCompression(trainer(tmp_path), {"compression": ALL[1]})
    assert compression.last_checkpoint() is None
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    (tmp_path / "checkpoint-11").mkdir()
    (tmp_path / "checkpoint-12").mkdir()
    (tmp_path / "checkpoint-12" / "trainer_state.json").write_text('{"torn')
    assert compression.last_checkpoint() == str(tmp_path / "checkpoint-10")


def encoder_decoder_trainer(folder: Path) -> "transformers.Trainer":
    """Its batches hold input_ids and labels, of which T5 makes the decoder's inputs."""
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=50, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2,
        decoder_start_token_id=0,
    )  # fmt: skip
    ids = torch.randint(1, 50, (32, 8), generator=torch.Generator().manual_seed(0))
    arguments = transformers.Seq2SeqTrainingArguments(
        str(folder), num_train_epochs=1, per_device_train_batch_size=16, use_cpu=True,
        report_to=[], disable_tqdm=True, save_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    return transformers.Seq2SeqTrainer(
        model=transformers.T5ForConditionalGeneration(config),
        args=arguments,
        train_dataset=[{"input_ids": one, "labels": one} for one in ids],
    )


@pytest.mark.parametrize("example_inputs", [None, {"input_ids": 2, "decoder_input_ids": 2}])
def test_an_encoder_decoder_is_calibrated_with_its_labels(
    tmp_path: Path, example_inputs: dict[str, int] | None
) -> None:
    made = encoder_decoder_trainer(tmp_path)
    inputs = example_inputs and {name: torch.ones(2, 8).long() for name in example_inputs}
    config = {"compression": {"algorithm": "quantization"}}
    compression = TrainerCompression(made, config, example_inputs=inputs)
    made.train()
    assert len(compression.controller.model.nncf.hooks) > 0
    compression.compressed()


def test_a_model_that_runs_on_no_batch_is_told_of_its_example_inputs(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    made.train_dataset = [{"labels": one["labels"]} for one in examples()]
    with pytest.raises(ArgumentError, match=r"The batch holds labels\. Pass example_inputs="):
        TrainerCompression(made, {"compression": ALL})
