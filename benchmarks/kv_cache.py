"""What a cache in a byte does to a small language model: perplexity, texts, and memory.

The model is that of `quantized_language_models.py`, trained here and kept in a folder of work.

    python benchmarks/kv_cache.py --data ../shared/data --work FOLDER --sizes 1M
"""

import math
from collections.abc import Callable

import torch
from quantized_language_models import LENGTH, arguments, text, trained, windows
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Cache, DynamicCache

from nncfx.integrations.kv_cache import ByteCache

FORMATS = ("int8", "float8_e4m3")


@torch.no_grad()
def perplexity(model: nn.Module, data: Tensor, make: Callable[[], Cache]) -> tuple[float, Tensor]:
    """Return the perplexity of a byte in pieces of 128, and the most likely bytes."""
    pieces = data[: len(data) // LENGTH * LENGTH].view(-1, LENGTH)
    total, likely = 0.0, []
    for batch in pieces.split(32):
        logits = model(input_ids=batch, cache=make()).logits[:, :-1]
        likely.append(logits.argmax(-1))
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="sum")
        total += float(loss)
    return math.exp(total / (len(pieces) * (LENGTH - 1))), torch.cat(likely)


def generated(model: nn.Module, prompts: Tensor, cache: Cache) -> Tensor:
    """Return as many bytes as the prompts have, greedily."""
    size = prompts.shape[1]
    options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    return model.generate(prompts, cache=cache, max_new_tokens=size, **options)[:, size:]


def main() -> None:
    """Print perplexities, and how much of the texts and of the memory stays."""
    options = arguments()
    train, test = text(options.data)
    half, prompts = test[: len(test) // 2], windows(test, 32, 7)[:, : LENGTH // 2]
    for size in options.sizes:
        model = trained(size, train, options.work)
        exact, likely = perplexity(model, half, lambda m=model: DynamicCache(config=m.config))
        print(f"{size} float: {exact:.4f}", flush=True)
        for name in FORMATS:
            found, other = perplexity(model, half, lambda m=model, n=name: ByteCache(m, n))
            agree = (other == likely).float().mean()
            print(f"{size} {name}: {found:.4f} ({found / exact - 1:+.4%}), same {agree:.2%}")
        for dtype in (torch.float32, torch.bfloat16):
            plain = DynamicCache(config=model.config)
            wanted = generated(model.to(dtype), prompts, plain)
            kept = sum(one.keys.nbytes + one.values.nbytes for one in plain.layers)
            for name in FORMATS:
                cache = ByteCache(model, name)
                is_same = generated(model, prompts, cache) == wanted
                print(
                    f"{size} {name} beside {dtype}: {cache.size_bytes / kept:.3f} of the bytes, "
                    f"{is_same.float().mean():.1%} the same, {int(is_same.all(1).sum())} texts"
                )


if __name__ == "__main__":
    main()
