"""A pruned and quantized model is thinned with its quantizers, and computes the same."""

import operator
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import nncfx
from nncfx.errors import ThinningError
from nncfx.quantization import Quantizer, QuantizerSpec, integer_arithmetic
from nncfx.quantization.ranges.observation import quantizers_of
from nncfx.runtimes import integer_kernels
from nncfx.tracing import Insertion, PostSite, Priority, WeightSite
from onnx_files import run_file


class Residual(nn.Module):
    """Two convolutions with batch norms around a sum, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.inner = nn.Conv2d(16, 24, 3, padding=1)
        self.outer = nn.Conv2d(24, 16, 3, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.outer(torch.relu(self.inner(x))))
        return self.head(x.mean((2, 3)))


X = torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(0))
PRUNING = {
    "algorithm": "filter_pruning",
    "pruning_init": 0.5,
    "params": {"prune_first_conv": True, "all_weights": True},
}


def trained(**quantization: object) -> nn.Module:
    config = nncfx.NNCFConfig.from_dict(
        {
            "input_info": {"sample_size": list(X.shape)},
            "compression": [PRUNING, {"algorithm": "quantization", **quantization}],
        }
    )
    _, model = nncfx.create_compressed_model(
        Residual(), config, example_inputs=X, calibration_batches=[X]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model.train()(X).square().mean().backward()
        optimizer.step()
    return model.eval()


def test_one_config_prunes_and_quantizes_and_the_thin_model_computes_the_same() -> None:
    model = trained()
    result = nncfx.thin(model)
    assert result.model.inner.out_channels == 12  # with 8 of 16, half of all
    assert set(quantizers_of(result.model)) == set(quantizers_of(model))
    assert result.max_error < 1e-5
    with integer_arithmetic(model):
        expected = model(X)
    with integer_arithmetic(result.model):
        assert torch.equal(result.model(X), expected)


def test_scales_of_channels_that_stay_are_the_old_ones() -> None:
    model = trained()
    result = nncfx.thin(model)
    site = WeightSite("inner", "weight")
    before, after = (quantizers_of(one)[site].scale for one in (model, result.model))
    gone = result.entries["inner.weight", 0]
    assert torch.equal(after, before[[i for i in range(24) if i not in gone]])
    assert len(after) == 12


def test_it_exports_smaller_integers_that_run(tmp_path: Path) -> None:
    model = trained()
    thin = nncfx.thin(model).model
    files = [
        nncfx.export_onnx(one, tmp_path / f"{index}.onnx", X)
        for index, one in enumerate((model, thin))
    ]
    assert files[1].size_bytes < 0.8 * files[0].size_bytes
    assert integer_kernels(files[1].path, X).float == ()
    results = [run_file(file.path, X)[0] for file in files]
    np.testing.assert_array_equal(*results)


def test_it_trains_on() -> None:
    model = nncfx.thin(trained()).model
    model.train()(X).sum().backward()
    gradients = {name: one.grad for name, one in model.named_parameters()}
    assert gradients["inner.weight"].shape == (12, 8, 3, 3)
    assert all(one is not None and one.abs().sum() > 0 for one in gradients.values())


def test_scales_of_an_activations_channels_follow() -> None:
    model = trained()
    hook = Quantizer(QuantizerSpec(axis=1), (24,))
    peaks = torch.arange(1.0, 25.0)
    hook.set_range(-peaks, peaks)
    site = PostSite("Residual/Conv2d[inner]/conv2d_0")
    model.nncf.register([Insertion(site, hook, Priority.QUANTIZATION, "quantization")])
    model.nncf.commit()
    result = nncfx.thin(model)
    stay = [i for i in range(24) if i not in result.entries["inner.weight", 0]]
    assert torch.equal(quantizers_of(result.model)[site].scale, hook.scale[stay])


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("weight_norm", [parametrizations.weight_norm, nn.utils.weight_norm])
def test_scales_of_a_weight_that_is_computed_follow(
    weight_norm: Callable[[nn.Module], nn.Module],
) -> None:
    torch.manual_seed(0)
    layers = [weight_norm(nn.Conv2d(3, 16, 3)), nn.ReLU(), weight_norm(nn.Conv2d(16, 8, 3))]
    config = {"compression": [PRUNING, {"algorithm": "quantization"}]}
    _, model = nncfx.create_compressed_model(
        nn.Sequential(*layers), config, X, calibration_batches=[X]
    )
    result = nncfx.thin(model.eval())
    (gone,) = result.removed.values()
    assert len(gone) == 8
    before, after = (
        next(
            hook
            for site, hook in quantizers_of(one).items()
            if str(site).endswith("[0]/conv2d_0|INPUT1")
        )
        for one in (model, result.model)
    )
    assert torch.equal(after.scale, before.scale[[i for i in range(16) if i not in gone]])
    with integer_arithmetic(model), integer_arithmetic(result.model):
        assert torch.equal(result.model(X), model(X))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_model_of_another_dtype_is_thinned(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    config = {"compression": [PRUNING, {"algorithm": "quantization"}]}
    _, model = nncfx.create_compressed_model(
        Residual().to(dtype), config, x, calibration_batches=[x]
    )
    result = nncfx.thin(model.eval())
    assert result.model.inner.out_channels == 12
    assert result.model(x).dtype == dtype
    limit = {torch.float64: 1e-9, torch.float16: 0.02, torch.bfloat16: 0.1}[dtype]
    torch.testing.assert_close(result.model(x), model(x), rtol=0, atol=limit)


class Attention(nn.Module):
    """Four heads, whose number stands in the code."""

    def __init__(self, scale: Callable[[Tensor, float], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (one(x).view(b, n, 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v))
        q = self.scale(q, 8**-0.5)
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.o(mixed.transpose(1, 2).reshape(b, n, 32))


@pytest.mark.parametrize("scale", [operator.mul, operator.imul])
def test_quantizers_go_back_into_graphs_of_modules_whose_code_holds_a_width(
    scale: Callable[[Tensor, float], Tensor],
) -> None:
    tokens = torch.randn(8, 5, 32, generator=torch.Generator().manual_seed(0))
    heads = {"pruning_target": 0.5, "align": 1, "form": "auto"}
    items = [
        {"algorithm": "head_pruning", "pruning_init": 0.5, "params": heads},
        {"algorithm": "quantization"},
    ]
    _, model = nncfx.create_compressed_model(
        Attention(scale), {"compression": items}, tokens, calibration_batches=[tokens]
    )
    result = nncfx.thin(model.eval())
    assert result.model.q.out_features == 16  # two heads of four
    assert set(quantizers_of(result.model)) == set(quantizers_of(model))
    more = torch.randn(3, 9, 32, generator=torch.Generator().manual_seed(1))
    with integer_arithmetic(model), integer_arithmetic(result.model):
        assert torch.equal(result.model(more), model(more))
    kept = nncfx.thin(model, form="class")
    assert kept.model.q.out_features == 32
    assert "form='auto'" in kept.fixed["q"]


def test_a_quantized_module_of_torch_fx_is_thinned() -> None:
    traced = torch.fx.symbolic_trace(Residual().eval())
    config = {"compression": [PRUNING, {"algorithm": "quantization"}]}
    model = nncfx.create_compressed_model(traced, config, X[:1], calibration_batches=[X])[1]
    thinned = nncfx.thin(model.eval(), X[:1]).model
    assert thinned.get_parameter("inner.weight").shape == (12, 8, 3, 3)
    assert type(thinned).__name__ == "Residual"


def test_a_file_is_read_where_the_forward_looks_at_values(tmp_path: Path) -> None:
    """As distributions check their logits: the sizes of a thin model come without values."""

    class Policy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.hidden, self.actor = nn.Linear(8, 64), nn.Linear(64, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits = self.actor(self.hidden(x).relu())
            return torch.distributions.Categorical(logits=logits, validate_args=True).probs

    x = torch.randn(4, 8)
    items = [
        {"algorithm": "neuron_pruning", "pruning_init": 0.5, "params": {"align": 1}},
        {"algorithm": "quantization"},
    ]
    config = {"compression": items}
    _, model = nncfx.create_compressed_model(Policy(), config, x, calibration_batches=[x])
    small = nncfx.thin(model.eval(), x).model
    path = nncfx.save(tmp_path / "policy.safetensors", small)
    torch.use_deterministic_algorithms(True)  # memory that nothing has written to is NaN
    try:
        _, again = nncfx.load(path, Policy())
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(again.eval()(x), small(x))


class Attending(nn.Module):
    """torch's attention and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(16, 4)
        self.inner, self.outer = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.outer(self.inner(x).relu())


@pytest.mark.parametrize(
    ("pruning", "is_refused"), [("head_pruning", True), ("neuron_pruning", False)]
)
def test_an_attention_that_thinning_will_refuse_is_told_before_training(
    pruning: str, is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(0))
    algorithms = [{"algorithm": pruning, "pruning_init": 0.5}, {"algorithm": "quantization"}]
    _, model = nncfx.create_compressed_model(
        Attending(), {"compression": algorithms}, x, calibration_batches=[x]
    )
    told = "'attention': torch's own attention is both pruned and quantized"
    assert (told in caplog.text) == is_refused
    if not is_refused:
        assert nncfx.thin(model.eval()).model.inner.out_features < 32
        return
    with pytest.raises(ThinningError, match="Thin before quantizing"):
        nncfx.thin(model.eval())
