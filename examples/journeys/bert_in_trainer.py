"""A BERT is pruned, quantized and distilled in transformers' Trainer, and goes on after a kill."""

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

torch.manual_seed(0)
torch.set_num_threads(1)
ids = torch.randint(2, 60, (128, 12))
rows = [{"input_ids": one, "labels": (one[0] > 30).long()} for one in ids]
model = BertForSequenceClassification(
    BertConfig(
        vocab_size=60,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=16,
    )
)
arguments = TrainingArguments(
    "bert-run",
    num_train_epochs=3,
    per_device_train_batch_size=16,
    learning_rate=2e-3,
    save_steps=4,
    use_cpu=True,
    report_to=[],
    disable_tqdm=True,
    logging_steps=4,
    dataloader_pin_memory=False,
)
trainer = Trainer(model, arguments, train_dataset=rows)

# nncfx
import nncfx
from nncfx.integrations.transformers import TrainerCompression

heads = {"algorithm": "head_pruning", "pruning_init": 0.25}
distillation = {"algorithm": "knowledge_distillation", "type": "softmax"}
config = {"compression": [heads, {"algorithm": "quantization"}, distillation]}
compression = TrainerCompression(trainer, config)
trainer.train(resume_from_checkpoint=compression.last_checkpoint())
small = compression.compressed().eval()
file = nncfx.export_onnx(small, "bert.onnx", {"input_ids": ids[:2]})
# end
print(f"{sum(one.numel() for one in small.parameters())} parameters, {file.size_bytes} bytes")
torch.save({"logits": small(input_ids=ids).logits.detach()}, "logits.pt")
