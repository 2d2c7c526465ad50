"""Low-rank updates: what trains, what stands still, and what is left at the end."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from language_models import language_model
from nncfx.errors import ArgumentError, GraphError
from nncfx.export import summarize_onnx
from nncfx.network import NNCFNetwork
from nncfx.quantization import LowRankUpdates, quantize, quantize_weights

TOKENS = torch.randint(60, (8, 16), generator=torch.Generator().manual_seed(0))


SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.02}
qwen2 = partial(language_model, "qwen2", tie_word_embeddings=True, **SIZES)


def logits(model: nn.Module) -> Tensor:
    out: Tensor = model(input_ids=TOKENS).logits
    return out


def quantized() -> NNCFNetwork:
    batches = [{"input_ids": TOKENS}]
    return quantize_weights(qwen2(), batches, bits=4)


def test_they_bring_the_outputs_nearer_to_float_and_end_up_in_the_weights(tmp_path: Path) -> None:
    with torch.no_grad():
        exact = logits(qwen2())
        model = quantized()
        start = float(F.mse_loss(logits(model), exact))
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    updates = LowRankUpdates(model, rank=4)
    with torch.no_grad():
        assert float(F.mse_loss(logits(model), exact)) == start  # nothing yet
    optimizer = torch.optim.Adam(updates.parameters(), 5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    for _ in range(60):
        optimizer.zero_grad()
        F.mse_loss(logits(model), exact).backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        trained = logits(model)
    assert float(F.mse_loss(trained, exact)) < 0.8 * start
    assert all(
        torch.equal(one, before[name]) for name, one in model.named_parameters() if name in before
    )
    assert updates.absorb() is model
    with torch.no_grad():
        assert torch.equal(logits(model), trained)
    assert {one.algorithm for one in model.nncf.hooks} == {"weight_quantization"}
    assert all(one.requires_grad for name, one in model.named_parameters() if name in before)
    # the tied matrix of embedding and head got one update, not two
    change = model.lm_head.weight - before["model.embed_tokens.weight"]
    assert torch.linalg.matrix_rank(change, atol=1e-6) <= 4
    file = nncfx.export_onnx(model, tmp_path / "m.onnx", {"input_ids": TOKENS})
    # 7 linear layers in each of 2 blocks, and the head: still integers
    assert summarize_onnx(file.path).operators["MatMulNBits"] == 15


def test_only_updates_learn_and_only_where_scopes_say() -> None:
    model = quantized()
    updates = LowRankUpdates(model, rank=2, scopes=["{re}q_proj", "{re}v_proj"])
    trained = {id(one) for one in updates.parameters()}
    # two blocks of q: 32 x 32 and v: 32 x 16, each with two thin matrices
    assert sum(one.numel() for one in updates.parameters()) == 2 * 2 * (32 + 32 + 32 + 16)
    assert {id(one) for one in model.parameters() if one.requires_grad} == trained


def test_convolutions_and_learned_grids_train_too() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 8, 8)
    float_model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4))
    model = quantize(float_model.eval(), [x], weight_bits=4)
    for one in dict.fromkeys(one.hook for one in model.nncf.hooks):
        one.learn()  # type: ignore[operator]  # a quantizer
    updates = LowRankUpdates(model, rank=2)
    F.mse_loss(model(x), float_model(x).detach()).backward()
    assert all(one.grad is not None for one in updates.parameters())
    grids = [one for one in model.modules() if type(one).__name__ == "Quantizer"]
    assert len(grids) == 4
    for one in updates.parameters():
        one.data += 0.01
    with torch.no_grad():
        before = model(x)
        assert torch.equal(updates.absorb()(x), before)


def test_what_cannot_be_trained_is_refused() -> None:
    model = quantized()
    with pytest.raises(ArgumentError, match="rank is 0; an update has at least rank 1"):
        LowRankUpdates(model, rank=0)
    with pytest.raises(GraphError, match="'nowhere' of scopes matches no operation"):
        LowRankUpdates(model, scopes=["nowhere"])
    with pytest.raises(GraphError, match=r"No matrix there has a quantizer.*quantize_weights"):
        LowRankUpdates(model, scopes=["{function}silu"])
    LowRankUpdates(model)
    with pytest.raises(ArgumentError, match="has low-rank updates already"):
        LowRankUpdates(model)
