"""A language model of Llama's kind goes to int4 with a cache; ONNX Runtime gives equal tokens."""

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
torch.set_num_threads(1)
model = Qwen3ForCausalLM(
    Qwen3Config(
        vocab_size=120,
        hidden_size=64,
        head_dim=16,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
    )
).eval()
prompt = torch.tensor([[3, 14, 15, 92, 65]])

# nncfx
from nncfx.export import export_causal_lm
from nncfx.quantization import quantize_weights
from nncfx.runtimes import CausalLM

small = quantize_weights(model, example_inputs={"input_ids": prompt}, bits=4)
file = export_causal_lm(small, "llama.onnx")
with CausalLM(file) as language_model:
    tokens = language_model.generate(prompt, max_new_tokens=40)
# end
expected = small.generate(prompt, max_new_tokens=40, do_sample=False, pad_token_id=0)
print(f"{file.size_bytes} bytes, tokens {tokens[0].tolist()}")
assert tokens.tolist() == expected.tolist()
