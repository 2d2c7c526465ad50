"""WikiText-2 and Tiny Shakespeare as minibatches of word numbers."""

import gzip
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn import functional as F

STEPS = 35
BATCH = 20
FILES = {
    "shakespeare": ("data/tinyshakespeare.txt.gz",),
    "wikitext2": ("data/wikitext-2/valid.txt.gz", "data/wikitext-2/test.txt.gz"),
}
UNKNOWN = "<unk>"
Batches = list[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Words:
    """Minibatches of word numbers of the three parts, and how many different words there are."""

    train: Batches
    held_out: Batches
    test: Batches
    vocabulary: int


def load(folder: Path, corpus: str, most: int) -> Words:
    """Return the words of "wikitext2", or the characters of "shakespeare", from `folder`.

    Of WikiText-2, nine tenths of valid.txt train and test.txt tests; of Tiny Shakespeare, the
    first nine tenths and the last one. The last tenth of what trains is held out. The `most`
    frequent tokens of the training part are known; others are `<unk>`.
    """
    if corpus == "shakespeare":
        every = list(_read(folder / "tinyshakespeare.txt.gz"))
        tokens, test = every[: len(every) * 9 // 10], every[len(every) * 9 // 10 :]
    else:
        tokens, test = (
            _read(folder / "wikitext-2" / f"{name}.txt.gz").replace("\n", " <eos> ").split()
            for name in ("valid", "test")
        )
    cut = len(tokens) * 9 // 10
    common = [word for word, _ in Counter(tokens[:cut]).most_common() if word != UNKNOWN]
    numbers = {word: i for i, word in enumerate([UNKNOWN, *common[: most - 1]])}
    parts = (tokens[:cut], tokens[cut:], test)
    rows = (torch.tensor([numbers.get(word, 0) for word in part]) for part in parts)
    return Words(*map(batches, rows), len(numbers))


def batches(words: torch.Tensor) -> Batches:
    """Return minibatches of `BATCH x STEPS` words, each with the words that follow."""
    width = (len(words) - 1) // BATCH
    inputs, targets = (words[i : i + BATCH * width].view(BATCH, width) for i in (0, 1))
    return list(zip(inputs.split(STEPS, dim=1), targets.split(STEPS, dim=1), strict=True))


def loss(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next word."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


@torch.no_grad()
def log_perplexity(model: torch.nn.Module, batches: Batches) -> float:
    """Return the mean cross-entropy over all words of `batches`, in nats."""
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for inputs, targets in batches:
        total += float(loss(model(inputs.to(device)), targets.to(device))) * targets.numel()
        count += targets.numel()
    return total / count


def _read(path: Path) -> str:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()
