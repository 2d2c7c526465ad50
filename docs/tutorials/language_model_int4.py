# %% [markdown]
# # Run a language model in int4
#
# You quantize the weights of a Llama to 4 bits in groups of 32 and export it with its key-value cache, so that ONNX
# Runtime generates each token in one step.

# %%
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import nncfx
from nncfx.export import export_causal_lm
from nncfx.runtimes import CausalLM

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=200, bos_token_id=None, eos_token_id=None,
)
model = LlamaForCausalLM(config).eval()
prompt = torch.tensor([[5, 17, 99, 3]])

# %% [markdown]
# ## Round the weights
#
# Nearest values need no data; `method="gptq"` with calibration batches makes up for the rounding.

# %%
small = nncfx.quantization.quantize_weights(model, example_inputs={"input_ids": prompt}, bits=4)

# %% [markdown]
# ## Export with the cache, and generate
#
# The loop is `CausalLM`; `stream` gives tokens as they come. `cache="int8"` keeps keys and values in bytes.

# %%
file = export_causal_lm(small, "llama.onnx")
with CausalLM(file, threads=1) as language_model:
    tokens = language_model.generate(prompt, max_new_tokens=10)
print(tokens)
print(f"{file.size_bytes} bytes; {sum(p.numel() * 4 for p in model.parameters())} in float")

# %% [markdown]
# ## Is it the same model?
#
# Tokens equal those of `generate()`. `export_causal_lm(..., accuracy_level=4)` lets ONNX Runtime round what a packed
# product reads to 8 bits: half the time per token, and after some tokens another text.

# %%
in_torch = small.generate(prompt, max_new_tokens=10, do_sample=False, pad_token_id=0)
assert in_torch.tolist() == tokens.tolist()
