"""Post-training quantization in one call."""

import copy
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nncfx
from language_models import bert
from nncfx.errors import ArgumentError, CompressionError, GraphError, TracingError
from nncfx.network import NNCFNetwork
from nncfx.quantization import (
    PlacementOptions,
    QuantizeOptions,
    Quantizer,
    RangeRequest,
    SpecRequest,
    quantize,
    quantize_weights,
)
from nncfx.targets import names
from small_models import Function


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.fc = nn.Linear(8 * 16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x)).relu()
        x = x + self.deep(x)
        return self.fc(nn.functional.max_pool2d(x, 2).flatten(1))


def fresh() -> Net:
    torch.manual_seed(0)
    model = Net()
    model.norm.running_mean.uniform_(-1, 1)
    model.norm.running_var.uniform_(0.5, 2)
    return model.eval()


def data(count: int = 4) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(8, 3, 8, 8, generator=generator) for _ in range(count)]


def error(model: nn.Module) -> float:
    """Return the share of the output's energy that is noise."""
    x = data(6)[-1]
    with torch.no_grad():
        expected = fresh()(x)
        return float((model(x) - expected).square().mean() / expected.square().mean())


def quantizers(model: NNCFNetwork) -> list[Quantizer]:
    return [one.hook for one in model.nncf.hooks if isinstance(one.hook, Quantizer)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": "net"}, r"model is a str. Pass a torch.nn.Module"),
        ({"calibration_batches": torch.zeros(8, 3, 8, 8)}, r"is a Tensor. .*images.split"),
        ({"calibration_batches": {"x": torch.zeros(8, 3, 8, 8)}}, r"is a dict. .*\[batch\]"),
        ({"ignored_scopes": "Net/Conv2d[conv]"}, r"is a str. .*\['Net/Conv2d\[conv\]'\]"),
        ({"ignored_scopes": [3]}, r"ignored_scopes is a list. It is a sequence of scopes, which"),
        ({"options": {"rounding": "gptq"}}, r"options is a dict. Pass .*QuantizeOptions"),
        ({"weight_bits": 3.5}, r"bits is 3.5; it is a whole number"),
        ({"activation_bits": "8"}, r"bits is '8'; it is a whole number"),
        ({"calibration_batches": 5}, r"calibration_batches is a int. It is an iterable"),
        ({"calibration_batches": ["x"]}, "A batch is or begins with a str"),
        ({"calibration_batches": []}, "no batches to calibrate"),
        ({"calibration_batches": iter([])}, "no batches to calibrate"),
        ({"calibration_batches": [data()[0][:0]] * 2}, "no batches to calibrate"),
        ({"target": None}, r"target is a NoneType. Pass a name, such as 'onnxruntime'"),
        ({"target": "openvin"}, "Did you mean 'openvino'"),
        ({"preset": "mixt"}, "Did you mean 'mixed'"),
        ({"samples": 0}, "samples is 0"),
    ],
)
def test_what_is_no_such_argument_is_refused_and_the_model_stays_plain(
    wrong: dict[str, Any], message: str
) -> None:
    model = fresh()
    arguments: dict[str, Any] = {"model": model, "calibration_batches": data(), **wrong}
    with pytest.raises(ArgumentError, match=message):
        quantize(**arguments, inplace=True)
    assert type(model) is Net


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"activation_range": "kl"}, r"is 'kl'. Write .*RangeRequest\(method='kl'\)"),
        ({"weight_range": "minmax"}, "no range method 'minmax'. Did you mean 'min_max'"),
        ({"weight_range": ("kl",)}, r"is \('kl',\). Write .*RangeRequest\(method='percentile'\)"),
        ({"placement": ["head"]}, r"placement is \['head'\]. Write .*PlacementOptions\(\.\.\.\)"),
        ({"rounding": "adaptve"}, r"Did you mean 'adaptive'\? Known are nearest, gptq"),
    ],
)
def test_options_are_refused_before_anything_is_calibrated(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        QuantizeOptions(**wrong)


@pytest.mark.parametrize("target", names("kernels"))
def test_on_every_target_the_outputs_stay_near(target: str) -> None:
    # power-of-two scales lose up to a bit, float8_e4m3 has three bits of mantissa
    bound = {"vta": 3e-3, "tensorrt-fp8": 5e-3}.get(target, 1e-3)
    assert 0 < error(quantize(fresh(), data(), target=target)) < bound


def test_it_returns_a_copy_that_shares_nothing() -> None:
    model = fresh()
    before = copy.deepcopy(model.state_dict())
    quantized = quantize(model, data())
    assert type(model) is Net
    assert isinstance(quantized, Net)
    with torch.no_grad():
        for one in quantized.parameters():
            one.zero_()
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name


def test_in_place_it_returns_the_model_itself_and_its_weights_untouched() -> None:
    model = fresh()
    before = copy.deepcopy(model.state_dict())
    assert quantize(model, data(), preset="fast", inplace=True) is model
    assert isinstance(model, Net)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name


def test_a_model_that_cannot_be_copied_is_told_and_quantized_in_place() -> None:
    model = fresh()
    model.lock = threading.Lock()
    with pytest.raises(ArgumentError, match=r"Net cannot be copied .* Pass inplace=True"):
        quantize(model, data())
    assert quantize(model, data(), inplace=True) is model


def test_more_bits_cost_less() -> None:
    errors = [
        error(quantize(fresh(), data(), weight_bits=n, activation_bits=n)) for n in (3, 5, 8)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_weights_are_on_the_grid_of_so_many_integers() -> None:
    model = quantize(fresh(), data(), weight_bits=3)
    for channel in model.nncf.weight("conv.weight").detach().flatten(1):
        assert len(channel.unique()) <= 7


class Labelled:
    """Pairs of inputs and labels, that count how often they are read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Iterator[Any]:
        for one in data(40):
            self.read += 1
            yield one, torch.zeros(8)


def test_labels_are_not_used_and_no_more_is_read_than_asked() -> None:
    loader = Labelled()
    quantize(fresh(), loader, samples=20)
    assert loader.read == 3


@pytest.mark.parametrize(
    "batches",
    [
        data(),
        [(one, 1) for one in data()],
        [[one] for one in data()],
        [{"x": one} for one in data()],
        [({"x": one}, 1) for one in data()],
        iter(data()),
    ],
    ids=["tensors", "pairs", "lists", "mappings", "mappings and labels", "iterator"],
)
def test_batches_may_have_any_of_these_forms(batches: Any) -> None:  # noqa: ANN401 (any form)
    expected = [one.scale for one in quantizers(quantize(fresh(), data()))]
    found = [one.scale for one in quantizers(quantize(fresh(), batches))]
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_a_tuple_of_all_positional_inputs_is_one_call() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.fc(x) + self.fc(y)

    model = quantize(Two(), [(torch.ones(2, 4), -torch.ones(2, 4))])
    assert len(model.nncf.graph.inputs) == 2


def test_symmetric_activations_are_unsigned_where_the_data_are_never_negative() -> None:
    model = quantize(fresh(), data(), preset="performance")
    found = {str(one.site): one.hook.spec for one in model.nncf.hooks}  # type: ignore[union-attr]
    assert not found["Net/relu_0|OUTPUT0"].signed
    assert found["Net/__add___0|OUTPUT0"].signed
    assert {one.mode for one in found.values()} == {"symmetric"}


def test_calibration_leaves_modes_buffers_and_random_state_alone() -> None:
    model = fresh().train()
    buffers = {name: one.clone() for name, one in model.named_buffers()}
    state = torch.random.get_rng_state()
    quantize(model, data(), inplace=True)
    assert model.training
    assert torch.equal(torch.random.get_rng_state(), state)
    for name, one in buffers.items():
        assert torch.equal(model.get_buffer(name), one), name


def test_options_change_ranges_and_overrides() -> None:
    placement = PlacementOptions(weight_overrides=(("{function}linear", SpecRequest(bits=4)),))
    options = QuantizeOptions(
        activation_range=RangeRequest(method="percentile", low=5, high=95), placement=placement
    )
    model = quantize(fresh(), data(), options=options)
    specs = {str(one.site): one.hook for one in model.nncf.hooks}
    assert specs["fc.weight"].spec.bits == 4  # type: ignore[union-attr]  # a quantizer
    plain = {str(one.site): one.hook for one in quantize(fresh(), data()).nncf.hooks}
    place = "Net/__add___0|OUTPUT0"
    assert specs[place].scale < plain[place].scale  # type: ignore[operator]  # tensors


@pytest.mark.parametrize(
    "options",
    [
        QuantizeOptions(equalize=True, correct_biases=True),
        QuantizeOptions(rounding="gptq"),
        QuantizeOptions(smooth=True),
    ],
    ids=["equalize", "gptq", "smooth"],
)
def test_methods_of_more_passes_work_from_a_generator(options: QuantizeOptions) -> None:
    plain = error(quantize(fresh(), data(), weight_bits=5))
    assert error(quantize(fresh(), iter(data()), weight_bits=5, options=options)) < 1.2 * plain


def test_correcting_biases_leaves_batch_norms_where_they_are() -> None:
    model, uncorrected = (
        quantize(fresh(), data(), weight_bits=4, options=QuantizeOptions(correct_biases=one))
        for one in (True, False)
    )
    assert isinstance(model.get_submodule("norm"), nn.BatchNorm2d)
    x = torch.cat(data())
    with torch.no_grad():
        exact = fresh()(x).mean(0)
        plain = uncorrected(x).mean(0)
        assert (model(x).mean(0) - exact).norm() < 0.5 * (plain - exact).norm()


@pytest.mark.parametrize(
    "options",
    [{"preset": "performance", "weight_bits": 4}, {"target": "vta"}],
    ids=["four bits", "folded batch norms"],
)
def test_a_quantized_model_comes_back_from_its_file(
    options: dict[str, Any], tmp_path: Path
) -> None:
    model = quantize(fresh(), data(), **options)
    nncfx.save(tmp_path / "model.safetensors", model)
    _, again = nncfx.load(tmp_path / "model.safetensors", fresh())
    assert torch.equal(again.eval()(data()[0]), model(data()[0]))


def test_a_pruned_model_is_quantized_where_it_stands() -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller, model = nncfx.create_compressed_model(fresh(), config, data()[0])
    controller.level = 0.5
    zeros = model.nncf.weight("conv.weight") == 0
    quantize(model, data(), inplace=True)
    assert bool(zeros.any())
    assert bool((model.nncf.weight("conv.weight") == 0)[zeros].all())


def test_the_copy_of_a_pruned_model_keeps_its_masks_and_is_no_longer_its_controllers() -> None:
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller, model = nncfx.create_compressed_model(fresh(), config, data()[0])
    controller.level = 0.5
    kept = [one.hook.mask.clone() for one in model.nncf.hooks]
    quantized = quantize(model, data())
    controller.level = 0.0
    hooks = [one.hook for one in quantized.nncf.hooks if one.algorithm == "magnitude_sparsity"]
    for hook, mask in zip(hooks, kept, strict=True):
        assert torch.equal(hook.mask, mask)
        assert (mask == 0).any()


def test_a_quantized_model_is_exported_as_a_program() -> None:
    model = quantize(fresh(), data())
    program = torch.export.export(model, (data()[0],))
    assert torch.equal(program.module()(data()[0]), model(data()[0]))


def test_a_quantized_model_is_exported_as_a_program_with_an_open_batch() -> None:
    model = quantize(fresh(), data())
    axes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (data()[0],), dynamic_shapes=axes)
    more = torch.cat([*data(), data()[0]])
    assert torch.equal(program.module()(more), model(more))


@pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec:FutureWarning")  # torch's own
def test_a_program_of_torch_export_is_refused_with_the_fix() -> None:
    program = torch.export.export(fresh(), (data()[0],)).module()
    with pytest.raises(CompressionError, match="quantize the module that was exported"):
        quantize(program, data())


class Pair(nn.Module):
    """Takes two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return self.left(a).relu() + self.right(b)


def test_labels_may_come_behind_several_inputs() -> None:
    a, b, labels = torch.randn(8, 4), torch.randn(8, 2), torch.arange(8)
    with_labels = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(a, b, labels), 4)
    torch.manual_seed(0)
    found = quantizers(quantize(Pair(), with_labels))
    torch.manual_seed(0)
    expected = quantizers(quantize(Pair(), [(a[:4], b[:4]), (a[4:], b[4:])]))
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.scale, other.scale)


def test_a_batch_that_the_forward_refuses_is_described() -> None:
    batch = {"a": torch.randn(8, 4), "b": torch.randn(8, 2), "label": torch.arange(8)}
    with pytest.raises(
        TracingError, match=r"'label'.* called with \(a=, b=, label=\) .* a dict\. Map"
    ):
        quantize(Pair(), [batch])


def test_a_model_on_the_meta_device_is_refused_for_its_weights() -> None:
    with torch.device("meta"):
        model = Pair()
    with pytest.raises(CompressionError, match=r"left.weight.*'meta' device.*Load them"):
        quantize(model, [(torch.randn(8, 4), torch.randn(8, 2))], inplace=True)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_traced_script_is_refused_as_one() -> None:
    script = torch.jit.trace(nn.Linear(4, 3), torch.zeros(1, 4))
    with pytest.raises(TracingError, match="TorchScript"):
        quantize(script, [torch.zeros(1, 4)])


def test_nan_activations_are_an_error_with_the_place() -> None:
    model = fresh()
    with pytest.raises(CompressionError, match=r"conv2d_0\|INPUT0' is NaN"):
        quantize(model, [torch.full((2, 3, 8, 8), torch.nan)], inplace=True)
    assert type(model) is Net


def test_nan_weights_are_an_error_with_the_name() -> None:
    model = fresh()
    with torch.no_grad():
        model.fc.weight[0, 0] = torch.nan
    with pytest.raises(CompressionError, match=r"'fc.weight': The weight is NaN"):
        quantize(model, data())


def test_an_activation_that_is_always_zero_is_told() -> None:
    with pytest.warns(UserWarning, match=r"conv2d_0\|INPUT0' is zero on all calibration data"):
        model = quantize(fresh(), [torch.zeros(2, 3, 8, 8)])
    assert torch.isfinite(model(data()[0])).all()


def test_a_scope_that_matches_nothing_is_an_error_and_the_model_stays_plain() -> None:
    model = fresh()
    with pytest.raises(GraphError, match="matches no operation"):
        quantize(model, data(), ignored_scopes=["Net/Conv2d[conv]/conv2d_7"], inplace=True)
    assert type(model) is Net


def test_a_model_without_anything_to_quantize_is_an_error() -> None:
    with pytest.raises(CompressionError, match="Nothing in the model can be quantized"):
        quantize(nn.Sequential(nn.Tanh()), [torch.ones(2, 3)])


def test_quantizing_twice_is_an_error() -> None:
    model = quantize(fresh(), data())
    with pytest.raises(ArgumentError, match="carries quantizers already"):
        quantize(model, data())
    assert len(quantizers(model)) > 0


def test_weights_that_are_quantized_are_not_quantized_again() -> None:
    x = torch.randn(8, 32)
    layers = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    model = quantize_weights(layers, [x], bits=4, ignored_scopes=["Sequential/Linear[2]"])
    refusal = r"'0\.weight' passes a quantizer of 4 bits already.*weight_bits=4"
    with pytest.raises(ArgumentError, match=refusal):
        quantize(model, [x])
    other = quantize(model, [x], ignored_scopes=["Sequential/Linear[0]"])
    assert [one.spec.bits for one in quantizers(other)].count(4) == 1


def test_weights_alone_are_quantized_where_they_are_not_yet() -> None:
    x = torch.randn(8, 32)
    layers = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
    model = quantize(layers, [x], ignored_scopes=["Sequential/Linear[0]"])
    count = len(quantizers(model))
    model = quantize_weights(model, [x], bits=4)
    assert [one.spec.bits for one in quantizers(model)].count(4) == 1
    assert len(quantizers(model)) == count + 1
    with pytest.raises(ArgumentError, match="All weights outside of ignored_scopes pass quantize"):
        quantize_weights(model, [x])


def test_a_layer_that_has_to_stay_in_float_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def forward(m: Function, x: Tensor) -> Tensor:
        return m.fc(nn.functional.conv2d(x, m.conv.weight * x.mean()))

    with caplog.at_level(logging.WARNING):
        quantize(Function(forward, conv=nn.Conv2d(3, 3, 1), fc=nn.Linear(8, 2)), data())
    assert "Function/conv2d_0 stays in float: its weight is computed from an input" in caplog.text


def test_layers_that_stay_in_float_for_one_reason_are_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    with caplog.at_level(logging.WARNING):
        quantize(model, [torch.randn(2, 5, 8)])
    (told,) = [one for one in caplog.messages if "attention" in one]
    assert told.startswith("3 operations stay in float, from 'TransformerEncoder/")
    assert "[2]/" in told
    assert told.endswith(": onnxruntime has no integer kernel for it")


class Items(torch.utils.data.Dataset[torch.Tensor]):
    """A data set of batches that is iterated by numbers alone."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return data()[index]


def test_a_data_set_without_an_iterator_is_read_by_its_numbers() -> None:
    x = data()[0]
    assert torch.equal(quantize(fresh(), Items())(x), quantize(fresh(), data())(x))


def test_the_files_of_transformers_take_a_quantized_model(tmp_path: Path) -> None:
    """Query, key and value read one tensor, and safetensors knows no tensor by two names."""
    batches = [{"input_ids": torch.randint(0, 50, (2, 8))}]
    model = quantize(bert(), batches)
    save_file(model.state_dict(), tmp_path / "state.safetensors")
    model.save_pretrained(tmp_path)
    expected = model(**batches[0])[0]
    for hook in model.nncf.hooks:
        hook.hook.step.fill_(1.0)
    for name in ("state", "model"):
        model.load_state_dict(load_file(tmp_path / f"{name}.safetensors"))
        assert torch.equal(model(**batches[0])[0], expected)


def test_the_default_is_nearer_to_float_than_the_fast_preset_at_few_bits() -> None:
    fast, default = (
        error(quantize(fresh(), data(), preset=one, weight_bits=4))  # type: ignore[arg-type]  # literals
        for one in ("fast", "default")
    )
    assert default < 0.8 * fast


def test_a_preset_gives_way_to_what_the_options_name() -> None:
    options = QuantizeOptions(rounding="nearest", correct_biases=False)
    by_hand = RangeRequest(method="min_max")
    named = quantize(
        fresh(), data(), weight_bits=4, options=replace(options, weight_range=by_hand)
    )
    fast = quantize(fresh(), data(), weight_bits=4, preset="fast")
    assert torch.equal(named(data()[0]), fast(data()[0]))


def test_biases_are_corrected_towards_the_weights_before_they_were_rounded() -> None:
    x = torch.cat(data())
    exact = fresh()(x).mean(0)
    with torch.no_grad():
        shifts = [
            (quantize(fresh(), data(), weight_bits=3, options=one)(x).mean(0) - exact).norm()
            for one in (QuantizeOptions(), QuantizeOptions(correct_biases=False))
        ]
    assert shifts[0] < 0.2 * shifts[1]


def test_what_a_preset_finds_nothing_for_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False)).eval()
    quantize(model, [torch.randn(8, 4)], target="onnxruntime-avx2")  # exact on every CPU
    assert not caplog.text
    quantize(model, [torch.randn(8, 4)], options=QuantizeOptions(correct_biases=True))
    assert "Correcting biases changes nothing" in caplog.text
