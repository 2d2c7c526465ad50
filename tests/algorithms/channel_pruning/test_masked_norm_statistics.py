"""Norms see living channels only in training: the masked model computes what the thin one does."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaModel, ViTConfig, ViTForImageClassification

import nncfx
from nncfx.algorithms.channel_pruning.masked_norm_statistics import NormHook
from nncfx.errors import ConfigError, StorageError, ThinningError
from nncfx.tracing import run
from small_models import Function

NORMS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], eps=1e-6),
    "mean": lambda x: x / x.mean(-1, keepdim=True),
    "group_norm": lambda x: F.group_norm(x.movedim(-1, 1), 1).movedim(1, -1),
}


def config(**params: object) -> dict[str, Any]:
    shared = {"schedule": "baseline", "num_init_steps": 0, "living_norms": True}
    item = {
        "algorithm": "structure_pruning",
        "pruning_init": 0.5,
        "params": {"pruning_target": 0.5, **shared, **params},
    }
    return {"compression": item}


def vit() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "image_size": 16, "patch_size": 8}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": 5}
    model = ViTForImageClassification(ViTConfig(**size, **layers)).double()
    return model, torch.randn(2, 3, 16, 16, dtype=torch.float64)


def hook_of(function: str, axis: int, size: int) -> NormHook:
    return NormHook(
        function, axis, torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.float64)
    )


@pytest.mark.parametrize("dead", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("function", NORMS)
def test_a_filled_norm_is_that_of_the_living_entries(function: str, dead: int) -> None:
    torch.manual_seed(dead)
    x = torch.randn(3, 4, 12, dtype=torch.float64) + 1
    alive = torch.ones(12, dtype=torch.bool)
    alive[torch.randperm(12)[:dead]] = False
    axis = 1 if function == "group_norm" else 2
    hook = hook_of(function, axis, 12)
    hook.set(alive)
    filled = hook(x.movedim(-1, axis)).movedim(axis, -1)
    expected = NORMS[function](x[..., alive])
    torch.testing.assert_close(NORMS[function](filled)[..., alive], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("function", NORMS)
def test_what_nothing_is_dead_in_passes_bit_for_bit(function: str) -> None:
    x = torch.randn(2, 6, 6)
    assert torch.equal(hook_of(function, 1, 6)(x), x)


def test_gradients_are_those_of_the_norm_of_the_living() -> None:
    x = torch.randn(4, 8, dtype=torch.float64)
    alive = torch.tensor([True, False, True, True, False, True, False, True])
    hook = hook_of("layer_norm", 1, 8)
    hook.set(alive)
    weight = torch.randn(4, 5, dtype=torch.float64)
    whole, part = x.clone().requires_grad_(), x[:, alive].clone().requires_grad_()
    (NORMS["layer_norm"](hook(whole))[:, alive] * weight).sum().backward()
    (NORMS["layer_norm"](part) * weight).sum().backward()
    torch.testing.assert_close(whole.grad[:, alive], part.grad, rtol=0, atol=1e-12)
    assert not whole.grad[:, ~alive].any()


def test_equal_entries_have_no_variance_and_finite_gradients() -> None:
    x = torch.ones(2, 6, requires_grad=True)
    hook = hook_of("layer_norm", 1, 6)
    hook.set(torch.tensor([True, True, True, False, False, True]))
    NORMS["layer_norm"](hook(x)).sum().backward()
    assert x.grad.isfinite().all()


def test_the_residual_stream_of_a_vision_transformer_goes_and_the_thin_model_is_equal() -> None:
    model, image = vit()
    dense = sum(one.numel() for one in model.parameters())
    controller, network = nncfx.create_compressed_model(model, config(), image)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(2):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        optimizer.zero_grad()
        (network(image).logits.square().mean() + controller.loss()).backward()
        optimizer.step()
    expected = network.eval()(image).logits
    thinned = nncfx.thin(controller.strip(), image).model
    torch.testing.assert_close(thinned(image).logits, expected, rtol=0, atol=1e-12)
    assert type(thinned) is ViTForImageClassification
    assert thinned.vit.layernorm.normalized_shape == (16,)
    assert sum(one.numel() for one in thinned.parameters()) < 0.35 * dense


def test_root_mean_squares_by_hand_are_of_the_living_too() -> None:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 40, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaModel(LlamaConfig(**size, **heads, use_cache=False)).double()
    head = nn.Sequential(last(model), nn.Linear(32, 3).double())
    tokens = torch.randint(40, (2, 6))
    controller, network = nncfx.create_compressed_model(head, config(align=2), tokens)
    expected = network.eval()(tokens)
    thinned = nncfx.thin(controller.strip(), tokens).model
    # its norms compute in float32
    torch.testing.assert_close(thinned(tokens), expected, rtol=1e-5, atol=1e-6)
    assert thinned[1].in_features == 16


def last(model: nn.Module) -> Function:
    return Function(
        lambda m, tokens: m.model(input_ids=tokens).last_hidden_state[:, -1], model=model
    )


def test_a_checkpoint_brings_back_what_the_norms_see(tmp_path: Path) -> None:
    model, image = vit()
    fresh = copy.deepcopy(model)
    controller, network = nncfx.create_compressed_model(model, config(), image)
    path = nncfx.save(tmp_path / "vit.ckpt", network, controller)
    _, again = nncfx.load(path, fresh, image)
    assert torch.equal(again.eval()(image).logits, network.eval()(image).logits)


def test_strip_bakes_the_masks_into_weights(tmp_path: Path) -> None:
    model, image = vit()
    controller, network = nncfx.create_compressed_model(model, config(), image)
    expected = network.eval()(image).logits
    stripped = controller.strip()
    assert {type(one.hook) for one in stripped.nncf.hooks} == {NormHook}
    # of 32 channels of the residual stream, half
    assert (stripped.state_dict()["classifier.weight"] == 0).all(0).sum() == 16
    assert torch.equal(stripped(image).logits, expected)
    with pytest.raises(StorageError, match=r"write what nncfx\.thin\(model\)\.model returns"):
        nncfx.save(tmp_path / "vit.nncfx", stripped)
    nncfx.save(tmp_path / "vit.nncfx", nncfx.thin(stripped).model)


def test_no_channel_of_a_norm_goes_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    example = torch.randn(4, 3)
    one, two = 1.2 / 6, 2.2 / 6
    for level, gone in ((one, 0), (two, 2)):
        chosen = config(pruning_target=level, align=1)
        chosen["compression"]["pruning_init"] = level
        made = nncfx.create_compressed_model(copy.deepcopy(model), chosen, example)
        assert nncfx.thin(made[0].strip(), example).model[0].out_features == 6 - gone


def test_it_is_quantized_as_well_and_thinned_with_its_quantizers() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
    batches = [torch.randn(16, 8) for _ in range(2)]
    both = config()
    both["compression"] = [both["compression"], {"algorithm": "quantization"}]
    controller, network = nncfx.create_compressed_model(
        model, both, batches[0], calibration_batches=batches
    )
    expected = run(network.eval(), batches[0])
    thinned = nncfx.thin(controller.prepare_for_export(), batches[0]).model
    assert thinned[0].out_features == 16
    torch.testing.assert_close(run(thinned, batches[0]), expected, rtol=0, atol=1e-5)


def test_layers_that_choose_for_themselves_share_no_norm() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.Linear(6, 2))
    with pytest.raises(ConfigError, match=r"living_norms.*all layers lose together"):
        nncfx.create_compressed_model(model, config(constrained=False), torch.randn(1, 3))


def test_without_the_key_the_stream_stays() -> None:
    model, image = vit()
    controller, _ = nncfx.create_compressed_model(model, config(living_norms=False), image)
    thinned = nncfx.thin(controller.strip(), image).model
    assert thinned.vit.layernorm.normalized_shape == (32,)
    assert "living_norms" in controller.statistics().to_str()


@pytest.mark.parametrize("norm_first", [False, True])
def test_torchs_transformers_lose_stream_and_heads_apart(
    tmp_path: Path, *, norm_first: bool
) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    model = nn.Sequential(nn.Linear(8, 32), encoder, nn.Linear(32, 2)).double()
    tokens = torch.randn(3, 6, 8, dtype=torch.float64)
    fresh = copy.deepcopy(model)
    chosen = config(align=1, pruning_target=0.3)
    chosen["compression"]["pruning_init"] = 0.3
    controller, network = nncfx.create_compressed_model(model, chosen, tokens)
    expected = network.eval()(tokens)
    thinned = nncfx.thin(controller.strip(), tokens).model
    torch.testing.assert_close(thinned(tokens), expected, rtol=0, atol=1e-12)
    attention = thinned[1].layers[0].self_attn
    assert (thinned[0].out_features, attention.num_heads, attention.head_dim) == (23, 3, 8)
    nncfx.storage.save(tmp_path / "thin.nncfx", thinned)
    again = nncfx.storage.load(tmp_path / "thin.nncfx", fresh).eval()
    assert torch.equal(again(tokens), thinned(tokens))


def test_dead_channels_that_stay_are_told_where_norms_would_see_them() -> None:
    """An alignment given to thin keeps dead entries of the stream, of which training knew none."""
    model, image = vit()
    _, model = nncfx.create_compressed_model(model, config(align=1), image)
    thinned = nncfx.thin(model.eval(), image)
    with torch.no_grad():
        torch.testing.assert_close(run(thinned.model, image), run(model, image), rtol=0, atol=1e-9)
    with pytest.raises(ThinningError, match=r"norms have seen .* dead ones that stay \(.*of 12"):
        nncfx.thin(model, image, align=12)  # 16 of 32 live


def test_sequences_with_padding_pass_torchs_encoder_masked_and_thin() -> None:
    """In evaluation torch packs them into a nested tensor; with gradients it does not."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dtype=torch.float64)
    model = nn.TransformerEncoder(layer, 2)
    inputs = {
        "src": torch.randn(2, 5, 16, dtype=torch.float64),
        "src_key_padding_mask": torch.tensor([5 * [False], [False] * 3 + [True] * 2]),
    }

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner = nn.Linear(16, 16, dtype=torch.float64), model
            self.head = nn.Linear(16, 2, dtype=torch.float64)

        def forward(self, src: torch.Tensor, src_key_padding_mask: torch.Tensor) -> torch.Tensor:
            found = self.inner(self.stem(src), src_key_padding_mask=src_key_padding_mask)
            return self.head(found[:, :3])

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")
        _, masked = nncfx.create_compressed_model(Classifier(), config(align=1), inputs)
        expected = run(masked.eval(), inputs)
        thinned = nncfx.thin(masked, inputs)
        assert thinned.model.stem.out_features == 8
        with torch.no_grad():
            for one in (masked, thinned.model):
                torch.testing.assert_close(run(one, inputs), expected, rtol=0, atol=1e-12)
