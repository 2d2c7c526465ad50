"""Weights in eight or four bits, activations in float."""

import copy
import logging
import math
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

import nncfx
from language_models import TOKENS, Language, bert, language_model
from nncfx.errors import ArgumentError, GraphError
from nncfx.quantization.grid.fake_quantize import fake_quantize
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.weight_only import quantize_weights
from nncfx.runtimes import integer_kernels
from onnx_files import run_file
from small_models import Function

onnx = pytest.importorskip("onnx")
transformers = pytest.importorskip("transformers")


def quantizer(model: nn.Module, key: str) -> Quantizer:
    found = next(one.hook for one in model.nncf.hooks if str(one.site) == key)
    assert isinstance(found, Quantizer)
    return found


def test_eight_bits_give_every_row_a_symmetric_grid_that_holds_its_largest_weight() -> None:
    model = quantize_weights(Language(), example_inputs=TOKENS)
    assert [str(one.site) for one in model.nncf.hooks] == [
        *("embedding.weight", "hidden.weight", "head.weight")
    ]
    weight = dict(model.named_parameters())["hidden.weight"].detach()
    torch.testing.assert_close(quantizer(model, "hidden.weight").scale, weight.abs().amax(1) / 127)
    assert (
        model.nncf.weight("hidden.weight") - weight
    ).abs().max() <= weight.abs().max() / 127 / 2 * 1.001


def test_four_bits_give_every_group_of_a_row_sixteen_values_of_its_own() -> None:
    model = quantize_weights(Language(), example_inputs=TOKENS, bits=4, group_size=16)
    groups = model.nncf.weight("hidden.weight").reshape(-1, 16)
    steps = quantizer(model, "hidden.weight").scale.view(-1, 1)
    assert steps.shape == (256, 1)
    whole = groups / steps
    torch.testing.assert_close(whole, whole.round(), atol=1e-4, rtol=0)
    assert (whole.amax(1) - whole.amin(1)).max() < 15.1


def test_gptq_comes_nearer_to_the_original_than_rounding_at_four_bits() -> None:
    exact = Language()(TOKENS)
    errors = [
        (quantize_weights(Language(), [TOKENS], bits=4, method=method)(TOKENS) - exact)
        .square()
        .mean()
        .item()
        for method in ("gptq", "round")
    ]
    assert errors[0] < errors[1] / 1.5


def test_a_wrapped_model_needs_no_inputs() -> None:
    model = nncfx.wrap(Language(), TOKENS)
    assert len(quantize_weights(model).nncf.hooks) == 3
    assert not model.nncf.hooks


def test_it_returns_a_copy_and_in_place_the_model_itself() -> None:
    model = Language()
    before = copy.deepcopy(model.state_dict())
    quantize_weights(model, [TOKENS], bits=4, method="gptq")
    assert type(model) is Language
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert quantize_weights(model, [TOKENS], inplace=True) is model


def test_readers_of_one_weight_share_one_quantizer_and_gptq_leaves_it() -> None:
    model = quantize_weights(Language(tied=True), [TOKENS], bits=4, method="gptq")
    assert quantizer(model, "embedding.weight") is quantizer(model, "head.weight")
    before = Language(tied=True).embedding.weight
    assert torch.equal(dict(model.named_parameters())["embedding.weight"], before)


def test_ignored_scopes_stay_in_float() -> None:
    model = quantize_weights(
        Language(), example_inputs=TOKENS, ignored_scopes=["{function}embedding"]
    )
    assert [str(one.site) for one in model.nncf.hooks] == ["hidden.weight", "head.weight"]


def test_the_stripped_model_has_the_rounded_weights() -> None:
    model = quantize_weights(Language(), [TOKENS], bits=4, method="gptq")
    plain = nncfx.strip(model)
    assert type(plain) is Language
    torch.testing.assert_close(plain(TOKENS), model(TOKENS))


def test_the_state_dict_carries_scales_into_a_fresh_model() -> None:
    model = quantize_weights(Language(), [TOKENS], bits=4, method="gptq")
    with torch.no_grad():
        other = Language()
        other.hidden.weight *= 3
    fresh = quantize_weights(other, example_inputs=TOKENS, bits=4)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(TOKENS), model(TOKENS))


def test_a_real_encoder_at_eight_bits_says_nearly_the_same() -> None:
    dense = bert(hidden_size=64, intermediate_size=128)
    tokens = torch.randint(50, (2, 9))
    with torch.no_grad():
        exact = dense(tokens).last_hidden_state
        model = quantize_weights(dense, example_inputs={"input_ids": tokens})
        found = model(tokens).last_hidden_state
    assert torch.cosine_similarity(found, exact, dim=-1).min() > 0.999
    assert len(model.nncf.hooks) == 3 + 2 * 6 + 1  # embeddings, layers, pooler


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 3}, "bits is 3; .* take 8 or 4"),
        ({"bits": 4, "group_size": 0}, "group_size is 0; a group has at least one weight"),
        ({"method": "gtpq"}, "no method 'gtpq'. Did you mean 'gptq'"),
        ({"method": "gptq"}, "there are no calibration batches"),
    ],
)
def test_what_is_not_admissible_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        quantize_weights(Language(), example_inputs=TOKENS, **options)


def test_a_plain_model_without_inputs_is_refused() -> None:
    with pytest.raises(ArgumentError, match="Pass example_inputs="):
        quantize_weights(Language())


def test_a_scope_that_matches_nothing_is_refused() -> None:
    with pytest.raises(
        GraphError, match=r"'\{function\}lineer' of ignored_scopes matches no operation"
    ):
        quantize_weights(Language(), example_inputs=TOKENS, ignored_scopes=["{function}lineer"])


def test_a_model_without_weights_is_refused() -> None:
    with pytest.raises(GraphError, match="no linear, convolutional, recurrent or embedding layer"):
        quantize_weights(nn.BatchNorm2d(3), example_inputs=torch.zeros(1, 3, 2, 2))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("layer", "axis"),
    [
        (nn.Conv1d(4, 6, 3), 0),
        (nn.Conv2d(4, 6, 3, groups=2), 0),
        (nn.Conv3d(4, 6, 3), 0),
        (nn.ConvTranspose1d(4, 6, 3), 1),
        (nn.ConvTranspose2d(4, 6, 3, groups=2), 1),
    ],
)
def test_filters_have_eight_bits_and_a_scale_each(
    layer: nn.Module, axis: int, bits: Literal[4, 8], tmp_path: Path
) -> None:
    weight = layer.get_parameter("weight").detach()
    inputs = torch.randn(2, 4, *[7] * (weight.ndim - 2))
    model = quantize_weights(layer, example_inputs=inputs, bits=bits)
    others = [one for one in range(weight.ndim) if one != axis]
    scale = weight.abs().amax(others, keepdim=True) / 127
    expected = copy.deepcopy(layer)
    expected.get_parameter("weight").data = (weight / scale).round() * scale
    torch.testing.assert_close(model(inputs), expected(inputs))
    file = onnx.load(nncfx.export_onnx(model, tmp_path / "file.onnx", inputs).path)
    stored = [one for one in file.graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert [math.prod(one.dims) for one in stored if len(one.dims) > 1] == [weight.numel()]


def test_tables_of_bags_are_quantized_by_row() -> None:
    bags = nn.EmbeddingBag(6, 4)
    rows = torch.tensor([[0, 1, 2], [3, 4, 5]])
    model = quantize_weights(bags, example_inputs=rows)
    (insertion,) = model.nncf.hooks
    assert str(insertion.site) == "weight"
    table = insertion.hook(bags.weight)
    steps = bags.weight.abs().amax(1, keepdim=True) / 127
    assert torch.equal(model(rows), table[rows].mean(1))
    assert ((table - bags.weight).abs() <= 0.5001 * steps).all()


def test_a_layer_that_reads_a_parameter_is_quantized_too() -> None:
    """Learned queries are a parameter as well; the weight is the second operand."""
    layers = Function(
        lambda m, x: x + m.mix(m.queries),
        queries=nn.Parameter(torch.randn(4, 8)),
        mix=nn.Linear(8, 8),
    )
    model = quantize_weights(layers, example_inputs=torch.randn(2, 4, 8))
    assert [str(one.site) for one in model.nncf.hooks] == ["mix.weight"]


class Columns(nn.Module):
    """Matrices whose columns make the outputs, as GPT-2 has them, and one read transposed."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.added = nn.Parameter(torch.randn(64, 48) / 8)
        self.bias = nn.Parameter(torch.randn(48))
        self.plain = nn.Parameter(torch.randn(48, 32) / 8)
        self.turned = nn.Parameter(torch.randn(16, 32) / 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.addmm(self.bias, x, self.added).relu() @ self.plain
        return y @ self.turned.T


class Rows(nn.Module):
    """The same of linear layers."""

    def __init__(self, of: Columns) -> None:
        super().__init__()
        self.added, self.plain = nn.Linear(64, 48), nn.Linear(48, 32, bias=False)
        self.turned = nn.Linear(32, 16, bias=False)
        with torch.no_grad():
            self.added.weight.copy_(of.added.T)
            self.added.bias.copy_(of.bias)
            self.plain.weight.copy_(of.plain.T)
            self.turned.weight.copy_(of.turned)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.turned(self.plain(self.added(x).relu()))
        return y


@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 16), (8, 16)])
def test_columns_are_quantized_and_packed_as_the_rows_of_linear_layers_are(
    bits: Literal[4, 8], group: int | None, tmp_path: Path
) -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    columns, rows = Columns(), Rows(Columns())
    wrapped = [
        quantize_weights(one, example_inputs=x, bits=bits, group_size=group)
        for one in (columns, rows)
    ]
    columns_read, rows_read = (one.nncf.weight for one in wrapped)
    torch.testing.assert_close(columns_read("added"), rows_read("added.weight").T, rtol=0, atol=0)
    torch.testing.assert_close(columns_read("turned"), rows_read("turned.weight"), rtol=0, atol=0)
    files = [
        nncfx.export_onnx(one, tmp_path / f"{index}.onnx", x) for index, one in enumerate(wrapped)
    ]
    outputs = []
    for file in files:
        assert integer_kernels(file.path, x).operators == {"MatMulNBits": 3, "Relu": 1}
        outputs.append(torch.from_numpy(run_file(file.path, x)[0]))
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("width", "group", "forms"),
    [
        (64, 32, [(4, 32), (4, 32)]),
        (48, 32, [(4, 16), (4, 32)]),
        (40, 32, [(8, None), (4, 32)]),
        (48, 128, [(4, 16), (4, 32)]),
        (64, 48, [(8, None), (8, None)]),
    ],
)
@pytest.mark.parametrize("is_turned", [False, True], ids=["rows", "columns"])
def test_a_layer_whose_rows_are_no_multiple_of_the_group_gets_what_they_allow_and_is_told(
    width: int,
    group: int,
    forms: list[tuple[int, int | None]],
    is_turned: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    layer = transformers.pytorch_utils.Conv1D(32, width) if is_turned else nn.Linear(width, 32)
    dense = nn.Sequential(layer, nn.Linear(32, 8))
    x = torch.randn(2, width, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING):
        model = quantize_weights(dense, [x], bits=4, group_size=group, method="gptq")
    specs = [one.hook.spec for one in model.nncf.hooks]
    assert [(one.bits, one.group) for one in specs] == forms
    for number, form in enumerate(forms):
        told = f"gives '{number}.weight' {form[0]} bits"
        assert (told in caplog.text) == (form != (4, group))
    assert torch.cosine_similarity(model(x), dense(x), dim=-1).min() > 0.98


def test_gptq_rounds_the_layers_of_gpt2(caplog: pytest.LogCaptureFixture) -> None:
    """Their weights lie the other way round than those of nn.Linear; some have odd widths."""
    gpt = language_model("gpt2", vocab_size=50, hidden_size=40, n_inner=96)
    batches = [{"input_ids": torch.randint(0, 50, (4, 16))} for _ in range(4)]
    with caplog.at_level(logging.INFO):
        rounded, nearest = (
            quantize_weights(gpt, batches, bits=4, method=method) for method in ("gptq", "round")
        )
    dense = dict(gpt.named_parameters())
    moved = {n for n, one in rounded.named_parameters() if n in dense and not one.equal(dense[n])}
    layers = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
    assert moved == {f"transformer.h.{n}.{one}.weight" for n in range(2) for one in layers}
    exact = gpt(**batches[0]).logits
    errors = [(one(**batches[0]).logits - exact).square().mean() for one in (rounded, nearest)]
    assert errors[0] < errors[1]
    assert "not by 'gptq': 'transformer.wte.weight'" in caplog.text


def test_groups_in_columns_are_the_groups_of_the_transposed_matrix() -> None:
    weight = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    spec = QuantizerSpec(bits=4, group=3)
    steps = torch.rand(8) + 0.1
    zeros = torch.zeros(8)
    by_column = fake_quantize(weight, steps, zeros, spec.replace(columns=True))
    torch.testing.assert_close(by_column.T, fake_quantize(weight.T, steps, zeros, spec))


@pytest.mark.parametrize("bits", [4, 8])
def test_hqq_leaves_sparser_errors_without_data(bits: Literal[4, 8]) -> None:
    model = Language()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(torch.rand(one.shape, generator=generator).add(0.02).rsqrt())
    plain, sparse = (
        quantize_weights(model, bits=bits, method=method, example_inputs=TOKENS)
        for method in ("round", "hqq")
    )
    for name in ("embedding.weight", "hidden.weight", "head.weight"):
        weight = dict(model.named_parameters())[name].detach()
        before, after = (
            (one.nncf.weight(name) - weight).detach().abs().pow(0.7).sum()
            for one in (plain, sparse)
        )
        assert after < before, name
        spec = quantizer(sparse, name).spec
        grid = quantizer(sparse, name).scale, quantizer(sparse, name).zero_point
        assert torch.equal(sparse.nncf.weight(name), fake_quantize(weight, *grid, spec))


def test_complex_weights_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    spectral = Function(
        lambda m, x: m.complex(m.real(x).to(torch.complex64)).abs(),
        real=nn.Linear(8, 8),
        complex=nn.Linear(8, 8, dtype=torch.complex64),
    )
    model = quantize_weights(spectral, example_inputs=torch.ones(1, 8), bits=8)
    assert [str(one.site) for one in model.nncf.hooks] == ["real.weight"]
    assert "'complex.weight' (linear)" in caplog.text
