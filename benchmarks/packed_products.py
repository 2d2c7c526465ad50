"""Time a token of a language model in ONNX Runtime: floats, and packed weights at both levels.

    python benchmarks/packed_products.py [--hidden 1024] [--rounds 5]

A random Llama of four blocks; one thread; files in turns; median time of a token behind a prompt
of 32, and the share of 24 tokens that are those of `generate()`.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from nncfx.export import export_causal_lm
from nncfx.quantization import quantize_weights
from nncfx.runtimes import CausalLM

_TOKENS = 24


def main() -> None:
    """Print a row for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=arguments.hidden,
        intermediate_size=arguments.hidden * 11 // 4,
        num_hidden_layers=4,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=8000,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(8000, (1, 32))
    folder = Path(tempfile.mkdtemp())
    files, expected = {}, {}
    for bits in (32, 8, 4):
        small = model
        if bits < 32:  # noqa: PLR2004 (floats)
            small = quantize_weights(model, example_inputs={"input_ids": prompt}, bits=bits)
        tokens = small.generate(prompt, max_new_tokens=_TOKENS, do_sample=False, pad_token_id=0)
        for level in (1, 4) if bits < 32 else (1,):  # noqa: PLR2004 (floats)
            path = folder / f"{bits}_{level}.onnx"
            files[bits, level] = export_causal_lm(small, path, accuracy_level=level)
            expected[bits, level] = tokens.numpy()
    sessions = {key: CausalLM(file, threads=1) for key, file in files.items()}
    times: dict[tuple[int, int], list[float]] = {key: [] for key in sessions}
    for _ in range(arguments.rounds):
        for key, session in sessions.items():
            stream = session.stream(prompt, max_new_tokens=8)
            next(stream)
            began = time.process_time()
            for _ in stream:
                times[key].append(time.process_time() - began)
                began = time.process_time()
    print("bits  level  MB      ms a token  equal tokens")
    for key, session in sessions.items():
        found = session.generate(prompt, max_new_tokens=_TOKENS)
        equal = (found == expected[key])[:, prompt.shape[1] :].mean()
        print(
            f"{key[0]:4}  {key[1]:5}  {files[key].size_bytes / 1e6:6.1f}  "
            f"{1e3 * statistics.median(times[key]):10.2f}  {equal:12.2f}"
        )


if __name__ == "__main__":
    main()
