# %% [markdown]
# # Train a transformer to int8 with Trainer
#
# You train a BERT with quantizers, using the `Trainer` of transformers, save it as a folder and export it. The model
# here is tiny and learns which of two words comes first.

# %%
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import nncfx
from nncfx.integrations.pretrained import from_pretrained, save_pretrained
from nncfx.integrations.transformers import TrainerCompression

torch.manual_seed(0)
ids = torch.randint(2, 50, (256, 8))
rows = [{"input_ids": one, "labels": (one[0] > 25).long()} for one in ids]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=16,
    )
)
arguments = TrainingArguments(
    "out", num_train_epochs=6, per_device_train_batch_size=32, learning_rate=2e-3, use_cpu=True,
    report_to=[], disable_tqdm=True, logging_strategy="no", save_strategy="no",
    dataloader_pin_memory=False,
)
trainer = Trainer(model, arguments, train_dataset=rows)

# %% [markdown]
# ## Two lines more
#
# `TrainerCompression` wraps the Trainer's model where it stands and calibrates on its data. Checkpoints hold the
# quantizers; `trainer.train(resume_from_checkpoint=compression.last_checkpoint())` continues exactly there.

# %%
compression = TrainerCompression(trainer, {"compression": {"algorithm": "quantization"}})
trainer.train()
small = compression.compressed().eval()
inputs = {"input_ids": ids}
right = small(**inputs).logits.argmax(1) == (ids[:, 0] > 25)
print(f"accuracy {right.float().mean():.3f} with quantizers")
assert right.float().mean() > 0.9

# %% [markdown]
# ## Save, load, export

# %%
save_pretrained(small, "small")
again = from_pretrained("small")
assert torch.equal(again(**inputs).logits, small(**inputs).logits)
example = {"input_ids": ids[:2]}
file = nncfx.export_onnx(small, "bert.onnx", example, dynamic_axes={"input_ids": {1: "length"}})
print(file.inputs, file.outputs, file.size_bytes, "bytes")
