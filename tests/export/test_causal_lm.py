"""Tokens from the file are those of transformers' `generate`."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from torch import nn

import nncfx
from language_models import language_model
from nncfx.errors import ArgumentError, ExportError
from nncfx.export import export_causal_lm
from nncfx.quantization.weight_only import quantize_weights
from nncfx.runtimes import CausalLM

PROMPTS = torch.tensor([[0, 0, 5, 9, 11], [7, 8, 1, 2, 40]])
MASK = (PROMPTS != 0).long()


def causal_lm(kind: str) -> nn.Module:
    # with a window of 4 tokens, of which the cache still holds all
    more = {"num_hidden_layers": 2, "sliding_window": 4} if kind == "mistral" else {}
    sizes = {"vocab_size": 97, "num_hidden_layers": 1, "max_position_embeddings": 64}
    return language_model(kind, **sizes | more, bos_token_id=None, eos_token_id=None)


def generated(model: nn.Module, **more: object) -> torch.Tensor:
    with torch.no_grad():
        return model.generate(
            PROMPTS,
            attention_mask=MASK,
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
            **more,
        )


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "kind", ["llama", *(pytest.param(one, marks=SLOW) for one in ("gpt2", "qwen2", "mistral"))]
)
def test_tokens_equal_those_of_generate(kind: str, tmp_path: Path) -> None:
    model = causal_lm(kind)
    file = export_causal_lm(model, tmp_path / "model.onnx")
    with CausalLM(file, threads=1) as session:
        found = session.generate(PROMPTS, attention_mask=MASK, max_new_tokens=12)
        end = int(found[0, 7])
        ended = session.generate(
            PROMPTS, attention_mask=MASK, max_new_tokens=12, eos_token_id=end, pad_token_id=0
        )
    assert found.tolist() == generated(model).tolist()
    assert ended.tolist() == generated(model, eos_token_id=end).tolist()
    assert len(set(found[:, 5:].ravel())) > 3  # not one token all over


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        ("qwen2", 4),
        pytest.param("llama", 4, marks=SLOW),
        pytest.param("gpt2", 4, marks=SLOW),
        pytest.param("llama", 8, marks=SLOW),
        pytest.param("gpt2", 8, marks=SLOW),
        pytest.param("qwen2", 8, marks=SLOW),
    ],
)
def test_tokens_of_quantized_weights(kind: str, bits: int, tmp_path: Path) -> None:
    inputs = {"input_ids": PROMPTS, "attention_mask": MASK}
    quantized = quantize_weights(causal_lm(kind), example_inputs=inputs, bits=bits)
    file = export_causal_lm(quantized, tmp_path / "model.onnx")
    with CausalLM(file, threads=1) as session:
        found = session.generate(PROMPTS, attention_mask=MASK, max_new_tokens=12)
    assert found.tolist() == generated(quantized).tolist()
    in_float = sum(one.numel() * 4 for one in causal_lm(kind).parameters())
    assert file.size_bytes < (0.6 if bits == 4 else 0.75) * in_float


@pytest.mark.slow
def test_level_4_rounds_what_packed_products_read(tmp_path: Path) -> None:
    """ONNX Runtime's documentation of `MatMulNBits`: 4 is int8, 1 is float32."""
    inputs = {"input_ids": PROMPTS, "attention_mask": MASK}
    quantized = quantize_weights(causal_lm("llama"), example_inputs=inputs, bits=8)
    counts = []
    for level in (1, 4):
        file = export_causal_lm(quantized, tmp_path / "m.onnx", accuracy_level=level)
        products = [one for one in onnx.load(file).graph.node if one.op_type == "MatMulNBits"]
        levels = {
            attribute.i
            for one in products
            for attribute in one.attribute
            if attribute.name == "accuracy_level"
        }
        assert levels == {level}
        counts.append(len(products))
    assert counts[0] == 2 * counts[1]  # a byte is read as two halves


@pytest.mark.slow
def test_tokens_of_integers_in_activations(tmp_path: Path) -> None:
    """Values at the middle of two steps round as they fall: prefill and one step are compared."""
    inputs = {"input_ids": PROMPTS, "attention_mask": MASK}
    quantized = nncfx.quantize(causal_lm("llama"), [inputs])
    file = export_causal_lm(quantized, tmp_path / "model.onnx")
    with CausalLM(file, threads=1) as session:
        found = session.generate(PROMPTS, attention_mask=MASK, max_new_tokens=2)
    assert found.tolist() == generated(quantized)[:, :7].tolist()
    kinds = {node.op_type for node in onnx.load(file).graph.node}
    assert "QuantizeLinear" in kinds


@pytest.mark.slow
def test_a_cache_of_bytes_gives_almost_the_same_logits(tmp_path: Path) -> None:
    model = causal_lm("llama")
    file = export_causal_lm(model, tmp_path / "model.onnx", cache="int8")
    graph = onnx.load(file).graph
    types = {one.name: one.type.tensor_type.elem_type for one in graph.input}
    assert types["past_key_values.0.key"] == onnx.TensorProto.INT8
    seen: list[torch.Tensor] = []

    def most_likely(logits: np.ndarray) -> np.ndarray:
        seen.append(torch.from_numpy(logits))
        return logits.argmax(-1)

    with CausalLM(file, threads=1) as session:
        found = session.generate(
            PROMPTS, attention_mask=MASK, max_new_tokens=4, choose=most_likely
        )
    with torch.no_grad():
        mask = torch.cat([MASK, torch.ones(2, 3, dtype=torch.int64)], 1)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        exact = model(
            torch.from_numpy(found[:, :-1]), attention_mask=mask, position_ids=positions
        ).logits[:, -1]
    error = (seen[-1] - exact).norm() / exact.norm()
    assert 0 < error < 0.03


def test_a_model_without_keys_and_values_is_refused(tmp_path: Path) -> None:
    config = transformers.MambaConfig(
        hidden_size=16, num_hidden_layers=1, state_size=4, vocab_size=20
    )
    with pytest.raises(ExportError, match="no keys and values"):
        export_causal_lm(transformers.MambaForCausalLM(config), tmp_path / "m.onnx")
    with pytest.raises(ExportError, match="Linear does not run on input_ids"):
        export_causal_lm(nn.Linear(2, 2), tmp_path / "m.onnx")
    with pytest.raises(ArgumentError, match="'openvino' has no packed products"):
        export_causal_lm(causal_lm("llama"), tmp_path / "m.onnx", "openvino", accuracy_level=4)
    with pytest.raises(ArgumentError, match="no kind of cache 'int4'"):
        export_causal_lm(causal_lm("llama"), tmp_path / "m.onnx", cache="int4")


@pytest.mark.slow
def test_a_failed_export_names_the_model_of_the_user(tmp_path: Path) -> None:
    model = causal_lm("llama")
    norm = model.model.layers[0].input_layernorm  # what stands before it is traced four times

    class Branching(type(norm)):  # type: ignore[misc]  # a class of transformers
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    norm.__class__ = Branching
    with pytest.raises(ExportError, match=r"^LlamaForCausalLM cannot be exported"):
        export_causal_lm(model, tmp_path / "m.onnx")
