"""Schemes on single weights reach embeddings and recurrent layers when they are asked to."""

import copy

import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, CompressionError
from nncfx.schemes import BlockPrune, Cluster, LowRank, Prune, Quantize, Scheme
from nncfx.schemes.layers import LAYER_KINDS, kinds_of, select_layers

WORDS = ("embedding", "lstm", "linear")
SCHEMES: list[Scheme] = [
    Prune(layers=WORDS),
    BlockPrune(bs=2, layers=WORDS),
    Cluster(2, layers=WORDS),
    Quantize("int8", layers=WORDS),
    LowRank(layers=WORDS),
]


class WordModel(nn.Module):
    """A language model whose decoder shares the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(12, 8)
        self.rnn = nn.LSTM(8, 8, num_layers=2, bidirectional=False)
        self.decoder = nn.Linear(8, 12)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.decoder(self.rnn(self.embedding(tokens))[0])
        return found


def test_by_default_embeddings_and_recurrent_layers_stay() -> None:
    model = nn.Sequential(nn.Embedding(4, 4), nn.GRU(4, 4), nn.Linear(4, 4))
    before = copy.deepcopy(model)
    for scheme in (Prune(), BlockPrune(bs=2), Cluster(1), Quantize("int8"), LowRank()):
        scheme.compress(model, 0.5)
    for (name, one), other in zip(model.named_parameters(), before.parameters(), strict=True):
        assert torch.equal(one, other) == (name != "2.weight")


def test_every_weight_matrix_of_a_recurrent_module_is_a_layer_with_its_bias() -> None:
    module = nn.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2)
    layers = select_layers(module, kinds_of(["lstm"]))
    expected = [name for name, _ in module.named_parameters() if name.startswith("weight")]
    assert [layer.weight_name for layer in layers] == expected
    # a projection has no bias
    biases = {layer.weight_name: layer.bias for layer in layers}
    assert biases["weight_hr_l0"] is None
    assert biases["weight_ih_l1_reverse"] is module.bias_ih_l1_reverse


@pytest.mark.parametrize("kind", LAYER_KINDS)
def test_every_kind_has_a_weight_that_goes(kind: str) -> None:
    examples = {
        "linear": nn.Linear(4, 4),
        "conv1d": nn.Conv1d(4, 4, 1),
        "conv2d": nn.Conv2d(4, 4, 1),
        "conv3d": nn.Conv3d(4, 4, 1),
        "embedding": nn.EmbeddingBag(4, 4),
        "lstm": nn.LSTMCell(4, 4),
        "gru": nn.GRU(4, 4),
        "rnn": nn.RNN(4, 4),
    }
    module = examples[kind]
    Prune(layers=(kind,)).compress(module, 0.5)
    weights = [p for n, p in module.named_parameters() if n.startswith("weight")]
    total = sum(weight.numel() for weight in weights)
    assert sum(int(weight.count_nonzero()) for weight in weights) == total // 2


def test_one_threshold_covers_gates_and_words() -> None:
    model = nn.Sequential(nn.Embedding(2, 2), nn.GRU(2, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model[1].weight_ih_l0.copy_(torch.tensor([[5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]))
        model[1].weight_hh_l0.copy_(torch.tensor([[0.5], [0.6], [0.7]]))
    # 13 weights, floor(0.54 * 13) = 7 of them stay: 4 to 10
    Prune(layers=("embedding", "gru")).compress(model, 0.46)
    assert model[0].weight.tolist() == [[0.0, 0.0], [0.0, 4.0]]
    assert model[1].weight_ih_l0.tolist() == [[5.0, 6.0], [7.0, 8.0], [9.0, 10.0]]
    assert not model[1].weight_hh_l0.any()


def test_a_weight_that_two_layers_share_counts_once() -> None:
    model = WordModel()
    Prune(layers=WORDS).compress(model, 0.5)
    weights = [p for n, p in model.named_parameters() if "bias" not in n]
    total = sum(weight.numel() for weight in weights)
    assert sum(int(weight.count_nonzero()) for weight in weights) == total // 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_parameters_that_change_are_those_that_are_named(scheme: Scheme) -> None:
    model = WordModel()
    before = copy.deepcopy(model)
    scheme.compress(model, 0.5)
    old = dict(before.named_parameters())
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, old[n])}
    # the shared matrix, and four of the LSTM
    assert len(scheme.parameters(before)) == 5
    assert changed <= scheme.parameters(before)
    # blocks of the embedding are large enough to stay
    assert len(changed) == (4 if isinstance(scheme, BlockPrune) else 5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_compressed_model_runs(scheme: Scheme) -> None:
    model = WordModel().eval()
    scheme.compress(model, 0.5)
    scheme.decompress(model)
    assert torch.isfinite(model(torch.arange(12).view(3, 4))).all()


def test_a_recurrent_network_computes_in_half_precision() -> None:
    model = WordModel().eval()
    tokens = torch.arange(12).view(3, 4)
    exact = model(tokens)
    scheme = Quantize("bfloat16", layers=WORDS)
    scheme.compress(model, 0.0)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    # eight bits of mantissa in a dozen products and sums of order 1
    assert (model(tokens).float() - exact).abs().max() < 0.1
    scheme.decompress(model)
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(ArgumentError, match=r"no kind of layer 'LSTM'.*lstm"):
        Prune(layers=("LSTM",))
    with pytest.raises(ArgumentError, match="layers is empty"):
        Cluster(layers=())


def test_blocks_that_do_not_tile_name_the_gate_matrix() -> None:
    with pytest.raises(CompressionError, match=r"'1\.weight_ih_l0' of \(9, 4\)"):
        BlockPrune(bs=2, layers=("gru",)).compress(
            nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 3)), 0.5
        )
