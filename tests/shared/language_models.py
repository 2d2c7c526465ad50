"""Small language models of transformers, and what they read: the same every time."""

import pytest
import torch
from torch import Tensor, nn


def language_model(kind: str = "llama", *, seed: int = 0, **changes: object) -> nn.Module:
    """Return a causal language model of these sizes, but for `changes`, by the name of its config.

    A config does not look at sizes that it does not know, such as the number of experts.
    """
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    sizes = {
        "vocab_size": 90, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
        "initializer_range": 0.2, "bos_token_id": 1, "eos_token_id": 1,
        "num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    }  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **sizes | changes)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def bert(kind: str = "BertModel", **changes: object) -> nn.Module:
    """Return an encoder of these sizes, but for `changes`, of a class of transformers."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 50, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }  # fmt: skip
    return getattr(transformers, kind)(transformers.BertConfig(**sizes | changes)).eval()


def token_batches(count: int = 3, rows: int = 4, tokens: int = 30) -> list[dict[str, Tensor]]:
    """Return inputs of a `language_model`."""
    generator = torch.Generator().manual_seed(0)
    shape = (rows, tokens)
    return [{"input_ids": torch.randint(90, shape, generator=generator)} for _ in range(count)]


class Language(nn.Module):
    """An embedding, a hidden layer, and a head that may share the embedding's weight."""

    def __init__(self, *, tied: bool = False, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.hidden = nn.Embedding(20, 64), nn.Linear(64, 64)
        self.head = nn.Linear(64, 20, bias=bias)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        y: Tensor = self.head(torch.relu(self.hidden(self.embedding(tokens))))
        return y


TOKENS = torch.randint(20, (6, 7), generator=torch.Generator().manual_seed(0))
