"""Perplexity in llama.cpp itself of GGUF files by nncfx and by llama.cpp.

A Llama of 4 million parameters learns Tiny Shakespeare in pieces of sentencepiece (512 of them);
its last tenth is for testing. llama.cpp's converter makes the float file; nncfx writes its codes
into files like it, and llama.cpp rounds it to its own types. All run in llama.cpp, which rounds
activations to 8 bits where weights are integers.

Needs sentencepiece, gguf, llama-cpp-python and a checkout of llama.cpp.

    python benchmarks/gguf_files.py --data ../shared/data --work FOLDER --llama-cpp FOLDER
"""

import argparse
import gzip
import math
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import llama_cpp
import numpy as np
import sentencepiece
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from nncfx.quantization.blocks.block_engine import WeightSettings
from nncfx.quantization.checkpoints.gguf_file import write_gguf
from nncfx.quantization.checkpoints.quantize_checkpoint import quantize_checkpoint

LENGTH, PIECES, STEPS = 128, 512, 700
CONFIG = {
    "vocab_size": PIECES,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 768,
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WAYS = {
    "int4, GPTQ (Q4_0)": {"weights": "int4"},
    "int4, AWQ and GPTQ (Q4_0)": {"weights": "int4", "scales": "awq"},
    "int4, rounded (Q4_0)": {"weights": "int4", "method": "round"},
    "uint4, GPTQ (Q4_1)": {"weights": "uint4"},
    "mxfp4, GPTQ (MXFP4)": {"weights": "mxfp4"},
    "int8, GPTQ (Q8_0)": {"weights": "int8"},
}
THEIRS = {"Q4_0": 2, "Q4_1": 3, "Q4_K": 14, "Q8_0": 7}
"""llama.cpp's own, and their numbers in `enum llama_ftype`."""


def arguments() -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with data/")
    parser.add_argument("--work", type=Path, required=True, help="keeps models and files")
    parser.add_argument("--llama-cpp", type=Path, required=True, help="a checkout")
    return parser.parse_args()


def tokens(data: Path, work: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the pieces to train on and those to test on."""
    work.mkdir(parents=True, exist_ok=True)
    with gzip.open(data / "data" / "tinyshakespeare.txt.gz", "rt") as file:
        text = file.read()
    (work / "text.txt").write_text(text)
    model = work / "tokenizer"
    if not model.with_suffix(".model").exists():
        given = {"model_type": "bpe", "byte_fallback": True, "minloglevel": 2}
        sentencepiece.SentencePieceTrainer.train(
            input=str(work / "text.txt"), model_prefix=str(model), vocab_size=PIECES, **given
        )
    reader = sentencepiece.SentencePieceProcessor(str(model.with_suffix(".model")))
    cut = len(text) * 9 // 10
    train, test = (torch.tensor(reader.encode(part)) for part in (text[:cut], text[cut:]))
    return train, test


def windows(data: torch.Tensor, count: int, seed: int) -> torch.Tensor:
    """Return `count` pieces of the text, n x 128."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(data) - LENGTH, (count,), generator=generator)
    return torch.stack([data[start : start + LENGTH] for start in starts.tolist()])


def trained(train: torch.Tensor, work: Path) -> Path:
    """Return the folder of the trained model."""
    folder = work / "float"
    if (folder / "model.safetensors").exists():
        return folder
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(**CONFIG))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS)
    for step in range(STEPS):
        batch = windows(train, 16, step)
        loss = model(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"step {step}, loss {loss:.3f}", flush=True)
    model.save_pretrained(folder)
    shutil.copy(work / "tokenizer.model", folder / "tokenizer.model")
    return folder


def perplexity(path: Path, test: torch.Tensor, pieces: int = 100) -> float:
    """Return that of a piece of text in llama.cpp, over pieces of 128."""
    model = llama_cpp.Llama(
        str(path), n_ctx=LENGTH, n_batch=LENGTH, n_threads=1, logits_all=True, verbose=False
    )
    total, count = 0.0, 0
    for window in test[: pieces * LENGTH].view(-1, LENGTH).tolist():
        model.reset()
        model.eval(window)
        logits = np.asarray(model.scores[: LENGTH - 1], dtype=np.float64)
        largest = logits.max(1)
        sums = largest + np.log(np.exp(logits - largest[:, None]).sum(1))
        total += float((sums - logits[np.arange(LENGTH - 1), window[1:]]).sum())
        count += LENGTH - 1
    return math.exp(total / count)


def files(folder: Path, work: Path, like: Path, train: torch.Tensor) -> Iterator[tuple[str, Path]]:
    """Yield the files that are compared."""
    batches = [{"input_ids": one} for one in windows(train, 128, 10**6).split(16)]
    for number, (label, given) in enumerate(WAYS.items()):
        group = None if given["weights"] == "mxfp4" else 32
        settings = WeightSettings(group_size=group, half_scales=True, **given)
        target = work / f"q{number}"
        shutil.rmtree(target, ignore_errors=True)
        quantize_checkpoint(folder, target, batches, settings)
        path = work / f"q{number}.gguf"
        write_gguf(path, target, source=folder, like=like, rest="int8")
        yield f"nncfx {label}", path
    for label, kind in THEIRS.items():
        given = llama_cpp.llama_model_quantize_default_params()
        given.ftype = kind
        given.output_tensor_type = given.token_embedding_type = llama_cpp.GGML_TYPE_Q8_0
        path = work / f"{label}.gguf"
        llama_cpp.llama_model_quantize(str(like).encode(), str(path).encode(), given)
        yield f"llama.cpp {label}", path


def main() -> None:
    """Train, quantize and print perplexities and sizes."""
    options = arguments()
    work = options.work
    train, test = tokens(options.data, work)
    folder = trained(train, work)
    like = work / "float.gguf"
    converter = options.llama_cpp / "convert_hf_to_gguf.py"
    command = [sys.executable, converter, folder, "--outtype", "f32", "--outfile", like]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603 (a program that is named)
    exact = perplexity(like, test)
    print(f"float: {exact:.4f}, {like.stat().st_size:,} bytes", flush=True)
    for label, path in files(folder, work, like, train):
        found, size = perplexity(path, test), path.stat().st_size
        print(f"{label}: {found:.4f} ({found / exact - 1:+.2%}), {size:,} bytes", flush=True)


if __name__ == "__main__":
    main()
