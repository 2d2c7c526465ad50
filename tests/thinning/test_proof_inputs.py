"""Random inputs are like the example's, and leave the user's random state alone."""

import torch
from torch import nn
from torch.nn import functional as F

from nncfx.thinning.proof_inputs import EmbeddingRows, random_inputs


def test_random_inputs_keep_shapes_types_and_ranges() -> None:
    given = {
        "image": torch.rand(2, 3, 4, 4).half(),
        "zeros": torch.zeros(5),
        "kinds": torch.tensor([[2, 3, 5]]),
        "mask": torch.tensor([True, False]),
        "words": torch.tensor([[7, 7]]),
        "rate": torch.tensor(0.5),
        "bias": torch.tensor([0.0, -torch.inf]),
        "name": "text",
    }
    state = torch.get_rng_state()
    bold, shy = random_inputs(given, {id(given["words"]): 9})
    again, _ = random_inputs(given, {id(given["words"]): 9})
    assert torch.equal(torch.get_rng_state(), state)
    for name, one in bold.items():
        if isinstance(one, torch.Tensor):
            assert (one.shape, one.dtype) == (given[name].shape, given[name].dtype)
            assert torch.equal(one, again[name])
    assert 0 <= bold["image"].min() < bold["image"].max() <= 1
    assert bold["zeros"].unique().numel() == 5
    assert bold["kinds"].min() >= 2
    assert bold["kinds"].max() <= 5
    assert bold["words"].max() < 9
    assert not torch.equal(bold["image"], given["image"])
    for name in ("mask", "rate", "bias"):
        assert torch.equal(bold[name], given[name])
    assert bold["name"] == "text"
    assert torch.equal(shy["kinds"], given["kinds"])
    assert torch.equal(shy["words"], given["words"])
    assert not torch.equal(shy["image"], given["image"])


def test_the_rows_that_an_input_chooses_from_are_those_of_the_shortest_table() -> None:
    words, other = torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    long, short = nn.Embedding(50, 4), nn.Embedding(20, 4)
    with EmbeddingRows((words, other)) as seen:
        long(words)
        short(words.view(3, 2)[:1])
        F.embedding(torch.zeros(1, dtype=torch.int64), long.weight)
    assert seen.rows == {id(words): 20}
