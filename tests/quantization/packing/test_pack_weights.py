"""Models whose weights are integers in memory."""

import copy
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from language_models import language_model
from nncfx.errors import ArgumentError, CompressionError, GraphError
from nncfx.quantization.packing.layers import PackedEmbedding, PackedLinear
from nncfx.quantization.packing.pack_weights import unpack_weights
from nncfx.quantization.quantize import quantize
from nncfx.quantization.weight_only import quantize_weights
from small_models import Function

TOKENS = torch.randint(90, (2, 9), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2"])
@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 32)])
def test_a_packed_language_model_computes_and_generates_as_the_simulation_does(
    kind: str, bits: Literal[4, 8], group: int | None
) -> None:
    simulated = quantize_weights(
        language_model(kind), example_inputs={"input_ids": TOKENS}, bits=bits, group_size=group
    )
    packed = quantize_weights(
        language_model(kind),
        example_inputs={"input_ids": TOKENS},
        bits=bits,
        group_size=group,
        pack=True,
    )
    with torch.no_grad():
        logits = [one(input_ids=TOKENS).logits for one in (simulated, packed)]
    # sums in another order
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(packed.generate(TOKENS, **options), simulated.generate(TOKENS, **options))
    floats = [
        one.numel()
        for name, one in packed.named_parameters()
        if one.ndim > 1 and not name.endswith(".scale")
    ]
    assert sum(floats) == 0
    held = sum({one.data_ptr(): one.nbytes for one in packed.state_dict().values()}.values())
    whole = sum({id(one): one.nbytes for one in language_model(kind).parameters()}.values())
    assert held < whole * (0.32 if bits == 8 else 0.2)


def test_the_state_dict_holds_integers_and_loads_into_another_packed_model() -> None:
    inputs = {"input_ids": TOKENS}
    packed = quantize_weights(language_model(), example_inputs=inputs, bits=4, pack=True)
    state = packed.state_dict()
    kinds = {name.rpartition(".")[2]: one.dtype for name, one in state.items()}
    assert kinds["codes"] == kinds["zero_point"] == torch.uint8
    other = language_model()
    with torch.no_grad():
        for one in other.parameters():
            one.mul_(0.5)
    loaded = quantize_weights(other, example_inputs=inputs, bits=4, pack=True)
    loaded.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(loaded(**inputs).logits, packed(**inputs).logits)


def test_tied_tables_share_their_codes() -> None:
    packed = quantize_weights(
        language_model("qwen2", tie_word_embeddings=True),
        example_inputs={"input_ids": TOKENS},
        pack=True,
    )
    table, head = packed.model.embed_tokens, packed.lm_head
    assert isinstance(table, PackedEmbedding)
    assert isinstance(head, PackedLinear)
    assert table.codes.data_ptr() == head.codes.data_ptr()
    assert torch.equal(table(torch.arange(90)), head.weight)


def test_gradients_pass_to_the_inputs() -> None:
    plain = nn.Sequential(nn.Linear(64, 32))
    packed = quantize_weights(plain, example_inputs=torch.zeros(1, 64), bits=4, pack=True)
    x = torch.randn(3, 64, requires_grad=True)
    packed(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, packed[0].weight.sum(0).expand(3, 64))


def test_unpacked_is_the_simulation_again_to_the_last_bit() -> None:
    inputs = {"input_ids": TOKENS}
    simulated = quantize_weights(
        language_model("qwen2", tie_word_embeddings=True), example_inputs=inputs, bits=4
    )
    packed = quantize_weights(
        language_model("qwen2", tie_word_embeddings=True), example_inputs=inputs, bits=4, pack=True
    )
    before = copy.deepcopy(packed.state_dict())
    again = unpack_weights(packed, inputs)
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits, simulated(**inputs).logits)
    assert all(torch.equal(one, before[name]) for name, one in packed.state_dict().items())


def test_recurrent_layers_are_decoded_when_they_are_read() -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        y: Tensor = m.head(m.memory(x)[0])
        return y

    x = torch.randn(5, 2, 8)
    model = Function(forward, memory=nn.GRU(8, 16), head=nn.Linear(16, 4)).eval()
    packed = quantize_weights(model, example_inputs=x, pack=True)
    simulated = quantize_weights(model, example_inputs=x)
    torch.testing.assert_close(packed(x), simulated(x), rtol=1e-5, atol=1e-6)
    assert isinstance(packed.head, PackedLinear)
    assert not dict(packed.memory.named_parameters(recurse=False)).keys() & {"weight_ih_l0"}


def test_what_cannot_be_packed_stays_rounded_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Conv1d(4, 4, 3), nn.ReLU(), nn.Conv1d(4, 4, 3)).eval()
    model[2].weight = model[0].weight
    x = torch.randn(2, 4, 9)
    packed = quantize_weights(model, example_inputs=x, pack=True)
    assert "1 quantized weights are rounded, but stay in float in memory" in caplog.text
    torch.testing.assert_close(packed(x), quantize_weights(model, example_inputs=x)(x))


def test_a_model_without_packed_layers_is_not_unpacked() -> None:
    with pytest.raises(ArgumentError, match="has no packed layer"):
        unpack_weights(nn.Linear(2, 2), torch.zeros(1, 2))


def test_a_packed_model_compiles_to_one_graph() -> None:
    packed = quantize_weights(
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8)),
        example_inputs=torch.zeros(1, 64),
        bits=4,
        pack=True,
    )
    compiled = torch.compile(packed, fullgraph=True, backend="eager")
    for rows in (1, 9):
        x = torch.randn(rows, 64)
        torch.testing.assert_close(compiled(x), packed(x), rtol=1e-5, atol=1e-5)


class Edges(nn.Module):
    """A layer of a graph network: the sparse matrix of its edges is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 16)
        edges = torch.eye(6) + torch.eye(6).roll(1, 0)
        self.register_buffer("edges", edges.to_sparse(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.edges, Tensor)
        return self.edges @ self.layer(x)


def test_a_model_with_a_sparse_buffer_is_packed() -> None:
    torch.manual_seed(0)
    model, x = Edges().eval(), torch.randn(6, 32)
    packed = quantize_weights(model, [x], bits=8, pack=True)
    assert isinstance(packed.layer, PackedLinear)
    torch.testing.assert_close(packed(x), model(x), rtol=0.02, atol=0.02)


def test_a_packed_layer_takes_nested_tensors() -> None:
    torch.manual_seed(0)
    layer, rows = nn.Linear(32, 16), [torch.randn(3, 32), torch.randn(5, 32)]
    packed = quantize_weights(nn.Sequential(layer), [rows[0]], bits=8, pack=True)
    found = packed(torch.nested.nested_tensor(rows, layout=torch.jagged))
    for one, row in zip(found.unbind(), rows, strict=True):
        torch.testing.assert_close(one, packed(row))


def test_codes_that_are_quantized_again_are_told_as_codes() -> None:
    x = torch.randn(8, 32)
    packed = quantize_weights(nn.Sequential(nn.Linear(32, 32)), example_inputs=x, pack=True)
    with pytest.raises(CompressionError, match="Its weights are codes: quantize the float model"):
        quantize(packed, [x])
    with pytest.raises(GraphError, match="Its weights are codes: quantize the float model"):
        quantize_weights(packed, example_inputs=x)
