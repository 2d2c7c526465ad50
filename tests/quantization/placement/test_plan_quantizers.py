"""Where quantizers go, on small models whose answer is plain, and on real ones."""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pytorchcv.models.densenet import densenet121
from pytorchcv.models.mobilenetv2 import mobilenetv2_w1
from pytorchcv.models.resnet import resnet18
from torch import Tensor, nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import ArgumentError, GraphError
from nncfx.quantization import PlacementOptions, QuantizationPlan, SpecRequest, plan_quantizers
from nncfx.runtimes import integer_kernels
from nncfx.targets import Descriptor, Hardware, hardware_named
from nncfx.tracing import PostSite, WeightSite
from onnx_files import assert_file_agrees, run_file
from small_models import Function

IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
CPU = hardware_named("onnxruntime")


def planned(
    model: nn.Module,
    hardware: Hardware = CPU,
    inputs: Tensor | tuple[Tensor, ...] = IMAGE,
    **options: object,
) -> QuantizationPlan:
    graph = nncfx.wrap(model.eval(), inputs).nncf.graph
    return plan_quantizers(graph, hardware, PlacementOptions(**options))  # type: ignore[arg-type]


def names(plan: QuantizationPlan) -> list[str]:
    return [one.name.removeprefix("Net/") for one in plan.activations]


class Net(nn.Module):
    """A forward of its own over named layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.other = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(4 * 16, 5)


class Chain(Net):
    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.fc(x.flatten(1))


def test_nothing_is_quantized_inside_a_fused_chain_and_pooling_moves_the_request_up() -> None:
    plan = planned(Chain())
    assert [one.name for one in plan.activations] == [
        "Chain/Conv2d[conv]/conv2d_0|INPUT0",
        "Chain/relu_0|OUTPUT0",
    ]
    assert [one.parameter for one in plan.weights] == ["conv.weight", "fc.weight"]
    assert plan.float_operations == ()


def test_one_quantizer_serves_all_readers_of_a_tensor() -> None:
    class Shared(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x).relu()
            return self.other(x).relu() + x

    plan = planned(Shared())
    (shared,) = [one for one in plan.activations if one.name == "Shared/relu_0|OUTPUT0"]
    assert shared.operations == (
        "Shared/Conv2d[conv]/conv2d_0",
        "Shared/Conv2d[other]/conv2d_0",
        "Shared/__add___0",
    )
    assert len(shared.sites) == 1


class Branching(Net):
    """Two ReLUs of one tensor, a max pooling before another, and whatever `extra` makes."""

    def __init__(self, *, extra: bool = False) -> None:
        super().__init__()
        self.third = nn.Conv2d(4, 4, 1)
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x))
        y = self.other(F.relu(x)) + self.other(F.relu(x))
        if self.extra:
            y = y + x
        return self.third(F.relu(F.max_pool2d(y, 2)))


def test_what_only_relus_read_is_quantized_once_behind_them() -> None:
    plan = planned(Branching())
    results = [one.sites for one in plan.activations]
    assert (PostSite("Branching/relu_0", 0), PostSite("Branching/relu_1", 0)) in results
    assert (PostSite("Branching/relu_2", 0),) in results
    behind = "Branching/BatchNorm2d[norm]/batch_norm_0"
    assert not any(
        one.name.startswith((behind, "Branching/__add___0")) for one in plan.activations
    )
    # their ranges are asked for by the producer as well
    (first,) = [one for one in plan.activations if one.name == "Branching/relu_0|OUTPUT0"]
    assert "Branching/Conv2d[conv]/conv2d_0" in first.operations


def test_what_not_only_relus_read_is_quantized_itself() -> None:
    plan = planned(Branching(extra=True))
    assert {"Branching/BatchNorm2d[norm]/batch_norm_0|OUTPUT0", "Branching/relu_0|OUTPUT0"} <= {
        one.name for one in plan.activations
    }


def test_numbers_with_a_sign_are_quantized_before_the_relu() -> None:
    # a ReLU whose quantizer does not imply it would stay between the layer and its quantizer
    plan = planned(Branching(), activations=SpecRequest(mode="symmetric", signed=True))
    assert "Branching/__add___0|OUTPUT0" in {one.name for one in plan.activations}


def test_both_operands_and_the_result_of_an_addition_are_quantized() -> None:
    class Residual(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return F.relu(x + self.norm(self.other(x)))

    plan = planned(Residual())
    found = [one.name.removeprefix("Residual/") for one in plan.activations]
    assert found == [
        "Conv2d[conv]/conv2d_0|INPUT0",
        "Conv2d[conv]/conv2d_0|OUTPUT0",
        "BatchNorm2d[norm]/batch_norm_0|OUTPUT0",
        "relu_0|OUTPUT0",
    ]


def test_what_is_concatenated_shares_a_quantizer() -> None:
    class Joined(Net):
        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x).relu()
            y = torch.cat([x, self.other(x).relu()], 1).mean((2, 3))
            return F.linear(y, torch.ones(3, 8))

    plan = planned(Joined())
    (joined,) = [one for one in plan.activations if len(one.tensors) > 1]
    assert [address for address, _ in joined.tensors] == ["Joined/relu_0", "Joined/relu_1"]
    assert len(joined.sites) == 2


@pytest.mark.parametrize("is_parameter", [False, True])
def test_what_is_joined_with_a_constant_is_quantized_behind_it(*, is_parameter: bool) -> None:
    model = Function(
        lambda m, x: m.last(
            torch.cat([x, m.token if is_parameter else torch.full((1, 1), 0.5)], 1)
        ),
        last=nn.Linear(5, 2),
        token=nn.Parameter(torch.ones(1, 1)),
    )
    plan = planned(model, inputs=torch.ones(1, 4))
    assert [str(site) for one in plan.activations for site in one.sites] == [
        "Function/cat_0|OUTPUT0"
    ]


@pytest.mark.parametrize(
    ("value", "behind"), [(0.5, True), (-2, True), (0.0, False), (None, False), (-1e9, False)]
)
def test_what_is_padded_is_quantized_where_the_filling_is_on_the_grid(
    value: float | None, *, behind: bool
) -> None:
    plan = planned(
        Function(lambda m, x: m.last(F.pad(x.exp(), (1, 1), value=value)), last=nn.Linear(6, 2)),
        inputs=torch.ones(1, 4),
    )
    (site,) = (str(site) for one in plan.activations for site in one.sites)
    assert site == ("Function/pad_0|OUTPUT0" if behind else "Function/exp_0|OUTPUT0")


def test_weights_of_convolutions_can_be_stored_in_bytes_where_none_is_computed_in_integers() -> (
    None
):
    bare = Hardware(name="bare", operations={"linear": CPU.descriptors("linear")})
    plan = planned(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 3)), bare)
    reason = (
        "bare has no integer kernel for it; nncfx.quantize_weights, called next, stores its "
        "weights in 8 bits"
    )
    assert [(one.kind, one.reason) for one in plan.float_operations] == [
        ("conv", reason),
        ("conv_transpose", reason),
    ]


def test_a_float_reader_beside_a_quantized_one_keeps_its_tensor() -> None:
    hardware = Hardware(name="bare", operations={"linear": CPU.descriptors("linear")})

    model = Function(
        lambda m, x: m.second(y := m.first(x).tanh()) + y,
        first=nn.Linear(4, 4),
        second=nn.Linear(4, 4),
    )
    plan = planned(model, hardware, torch.ones(2, 4))
    assert [str(site) for one in plan.activations for site in one.sites] == [
        "Function/Linear[first]/linear_0|INPUT0",
        "Function/Linear[second]/linear_0|INPUT0",
    ]
    assert {(one.kind, one.reason) for one in plan.float_operations} == {
        ("tanh", "bare has no integer kernel for it"),
        ("add", "bare has no integer kernel for it"),
    }


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 8)
        self.q, self.k = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.table(x)
        return (self.q(x) @ self.k(x).transpose(1, 2) / 8**0.5).softmax(-1)


class FusedAttention(nn.Module):
    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


HEADS = (*(torch.randn(1, 2, 4, 8) for _ in range(3)), torch.zeros(4, 4))


def test_attention_has_quantized_queries_and_keys_where_the_hardware_says_so() -> None:
    attention = (Descriptor(inputs=("uint8",), output="float32"),)
    hardware = dataclasses.replace(CPU, operations={**CPU.operations, "attention": attention})
    plan = planned(FusedAttention(), hardware, HEADS)
    place = "FusedAttention/scaled_dot_product_attention_0"
    assert [one.name for one in plan.activations] == [f"{place}|INPUT0", f"{place}|INPUT1"]


def test_attention_stays_in_float_on_hardware_that_gains_nothing_by_integers() -> None:
    plan = planned(FusedAttention(), CPU, HEADS)
    assert [one.reason for one in plan.float_operations] == [
        "onnxruntime has no integer kernel for it"
    ]


def test_the_factors_of_an_attention_product_are_quantized_and_the_scaling_is_not() -> None:
    plan = planned(Attention(), inputs=torch.arange(6).reshape(2, 3))
    product = [one for one in plan.activations if "Attention/__matmul___0" in one.operations]
    assert [one.tensors[0][0] for one in product] == [
        "Attention/Linear[q]/linear_0",
        "Attention/Linear[k]/linear_0",
    ]
    reasons = {one.kind: one.reason for one in plan.float_operations}
    assert reasons["div"] == "onnxruntime has no integer kernel for it"
    assert reasons["softmax"] == "onnxruntime has no integer kernel for it"


def test_an_embedding_has_a_quantized_table_and_no_quantized_index() -> None:
    plan = planned(Attention(), inputs=torch.arange(6).reshape(2, 3))
    (table,) = [one for one in plan.weights if one.parameter == "table.weight"]
    assert table.spec.axis == 0
    assert not any(
        "embedding_0|INPUT" in str(site) for one in plan.activations for site in one.sites
    )


def test_an_addition_of_a_constant_stays_in_float_with_the_reason() -> None:
    (left,) = planned(
        Function(lambda m, x: m.conv(x).relu() + 1.0, conv=nn.Conv2d(3, 4, 3))
    ).float_operations
    assert (left.address, left.reason) == (
        "Function/__add___0",
        "one of its operands is a constant",
    )


@pytest.mark.parametrize("norm", [nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)])
def test_a_convolution_ends_before_a_norm_that_its_kernel_does_not_hold(norm: nn.Module) -> None:
    plan = planned(nn.Sequential(nn.Conv2d(3, 4, 3), norm, nn.ReLU()), inputs=IMAGE[:, :3])
    assert "Sequential/Conv2d[0]/conv2d_0|OUTPUT0" in [one.name for one in plan.activations]


def test_the_weights_that_are_ignored_may_be_computed() -> None:
    class Computed(Net):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.conv.weight / self.conv.weight.norm())

    assert len(planned(Computed()).weights) == 1
    assert not planned(Computed(), ignored_weights=("{re}.*",)).weights


@pytest.mark.parametrize(
    ("layer", "shape", "axis"),
    [
        (nn.Conv2d(4, 6, 1), (2, 4, 5, 5), 0),
        (nn.ConvTranspose2d(4, 6, 1), (2, 4, 5, 5), 1),
        (nn.Linear(4, 6), (2, 4), 0),
    ],
)
def test_the_axis_of_scales_is_that_of_the_outputs(
    layer: nn.Module, shape: tuple[int, ...], axis: int
) -> None:
    (weight,) = planned(nn.Sequential(layer), inputs=torch.ones(shape)).weights
    assert weight.spec.axis == axis
    assert weight.spec.narrow


def test_a_matrix_product_with_a_parameter_has_a_scale_per_column() -> None:
    (weight,) = planned(
        Function(lambda m, x: x @ m.weight, weight=nn.Parameter(torch.ones(4, 6))),
        inputs=torch.ones(2, 4),
    ).weights
    assert weight.spec.axis == 1


def test_ignored_and_other_than_target_scopes_stay_in_float_with_the_reason() -> None:
    ignored = planned(Chain(), ignored_scopes=("{function}linear",))
    assert [(one.kind, one.reason) for one in ignored.float_operations] == [
        ("linear", "it is in the ignored scopes")
    ]
    targeted = planned(Chain(), target_scopes=("{function}linear",))
    assert [one.parameter for one in targeted.weights] == ["fc.weight"]
    assert [one.reason for one in targeted.float_operations] == ["it is not in the target scopes"]


def test_a_scope_that_matches_nothing_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(GraphError, match=r"Did you mean 'Chain/Conv2d\[conv\]/conv2d_0'"):
        planned(Chain(), ignored_scopes=("Chain/Conv2d[conv]/conv2d_1",))


@pytest.mark.parametrize("scope", ["conv2d", "{conv2d}", "{function}conv2", "{function}conv2d "])
def test_the_bare_name_of_a_function_is_told_how_to_be_written(scope: str) -> None:
    with pytest.raises(GraphError, match=r"Did you mean '\{function\}conv2d'"):
        planned(Chain(), ignored_scopes=(scope,))


def test_overrides_hold_for_their_operations_only() -> None:
    four = SpecRequest(bits=4)
    plan = planned(
        Chain(),
        weight_overrides=(("{function}linear", four),),
        activation_overrides=(("{function}conv2d", four),),
    )
    assert {one.parameter: one.spec.bits for one in plan.weights} == {
        "conv.weight": 8,
        "fc.weight": 4,
    }
    # what the convolution reads, and what it makes
    assert [one.spec.bits for one in plan.activations] == [4, 4]


def test_bits_that_the_hardware_has_not_are_refused() -> None:
    with pytest.raises(ArgumentError, match="16 bits are asked for, and onnxruntime computes in"):
        planned(Chain(), weights=SpecRequest(bits=16))


@pytest.mark.parametrize("asked", [{"mode": "asymmetric"}, {"signed": False}])
def test_weights_without_symmetry_are_refused_where_the_hardware_has_none(
    asked: dict[str, str | bool],
) -> None:
    with pytest.raises(ArgumentError, match="tensorrt takes symmetric weights with a sign only"):
        planned(Chain(), hardware_named("tensorrt"), weights=SpecRequest(**asked))


def test_an_asymmetric_mode_is_refused_where_the_hardware_has_none() -> None:
    with pytest.raises(ArgumentError, match="tensorrt takes symmetric activations only"):
        planned(Chain(), hardware_named("tensorrt"), activations=SpecRequest(mode="asymmetric"))


def test_tensorrt_gets_signed_symmetric_activations_whatever_the_data() -> None:
    for one in planned(Chain(), hardware_named("tensorrt")).activations:
        assert (one.spec.mode, one.spec.signed, one.is_sign_open) == ("symmetric", True, False)


def test_vta_gets_one_power_of_two_scale_per_weight() -> None:
    for one in planned(Chain(), hardware_named("vta")).weights:
        assert one.spec.axis is None
        assert one.spec.power_of_two


def test_the_model_s_inputs_can_be_left_alone() -> None:
    plan = planned(Chain(), quantize_inputs=False)
    assert [one.name for one in plan.activations] == ["Chain/relu_0|OUTPUT0"]


def test_the_models_outputs_can_be_quantized() -> None:
    plan = planned(Chain(), quantize_outputs=True)
    assert plan.activations[-1].name == "Chain/Linear[fc]/linear_0|OUTPUT0"


def test_groups_of_scopes_share_a_scale() -> None:
    inputs = (torch.ones(2, 4), torch.ones(2, 4))
    for unified, count in ((), 2), ((("{function}linear",),), 1):
        model = Function(
            lambda m, x, y: (m.first(x), m.second(y)),
            first=nn.Linear(4, 4),
            second=nn.Linear(4, 4),
        )
        assert len(planned(model, inputs=inputs, unified=unified).activations) == count


def test_planning_twice_gives_equal_plans() -> None:
    graph = nncfx.wrap(Chain().eval(), IMAGE).nncf.graph
    assert plan_quantizers(graph, CPU) == plan_quantizers(graph, CPU)


@pytest.mark.parametrize(
    ("build", "contractions"), [(resnet18, 21), (mobilenetv2_w1, 54), (densenet121, 121)]
)
def test_every_layer_of_a_real_model_is_quantized(build: object, contractions: int) -> None:
    model = build()  # type: ignore[operator]  # parametrized
    graph = nncfx.wrap(model.eval(), torch.zeros(1, 3, 224, 224)).nncf.graph
    plan = plan_quantizers(graph, CPU)
    assert len(plan.weights) == contractions
    sites = [site for one in plan.quantizers for site in one.sites]
    assert len(sites) == len(set(sites))
    assert {one.kind for one in plan.float_operations} <= {"batch_norm"}


def test_an_addition_that_only_a_float_operation_reads_stays_in_float() -> None:
    model = Function(
        lambda m, x: m.second(m.norm(m.first(x) + x)),
        first=nn.Linear(6, 6),
        second=nn.Linear(6, 6),
        norm=nn.LayerNorm(6),
    )
    plan = planned(model, inputs=torch.randn(2, 6))
    assert [one.name for one in plan.activations] == [
        "Function/Linear[first]/linear_0|INPUT0",
        "Function/LayerNorm[norm]/layer_norm_0|OUTPUT0",
    ]
    (reason,) = [one.reason for one in plan.float_operations if one.kind == "add"]
    assert reason == "nothing that reads it is computed in integers"


def test_a_scale_per_channel_of_an_activation_is_refused_with_the_reason() -> None:
    with pytest.raises(ArgumentError, match="a sum over channels has one scale"):
        planned(Chain(), activations=SpecRequest(per_channel=True))


def test_of_a_recurrent_layer_only_the_weights_are_integers_and_that_is_told() -> None:
    def recurrent() -> nn.Module:
        return Function(lambda m, x: m.fc(m.lstm(x)[0]), lstm=nn.LSTM(4, 4), fc=nn.Linear(4, 2))

    plan = planned(recurrent(), inputs=torch.ones(3, 2, 4))
    assert [(one.parameter, one.spec.axis) for one in plan.weights] == [
        ("lstm.weight_ih_l0", 0),
        ("lstm.weight_hh_l0", 0),
        ("fc.weight", 0),
    ]
    assert len({one.name for one in plan.quantizers}) == 4
    assert [one.role for one in plan.quantizers if one.tensors] == ["activation"]  # of the linear
    without = "has no integer kernel for it"
    fix = "nncfx.quantize_weights, called next, stores its weights in 8 bits"
    assert [(one.kind, one.reason) for one in plan.float_operations] == [
        ("recurrent", f"onnxruntime {without}; its weights are stored as int8 anyway")
    ]
    other = planned(recurrent(), hardware_named("tensorrt"), inputs=torch.ones(3, 2, 4))
    assert [(one.kind, one.reason) for one in other.float_operations] == [
        ("recurrent", f"tensorrt {without}; {fix}")
    ]


class Turned(nn.Module):
    """A product by a parameter that is transposed in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.weight, self.way = nn.Parameter(torch.randn(5, 3)), way

    def forward(self, x: Tensor) -> Tensor:
        weight = {
            "T": lambda: self.weight.T,
            "mT": lambda: self.weight.mT,
            "t": self.weight.t,
            "transpose": lambda: self.weight.transpose(0, 1),
        }[self.way]()
        return x @ weight


@pytest.mark.parametrize("way", ["T", "mT", "t", "transpose"])
def test_a_weight_that_is_read_transposed_is_quantized_itself_by_output(way: str) -> None:
    plan = planned(Turned(way), inputs=torch.ones(2, 3))
    (weight,) = plan.weights
    assert weight.sites == (WeightSite.of("weight"),)
    assert weight.spec.axis == 0
    assert names(plan) == ["Turned/__matmul___0|INPUT0"]


def test_a_weight_that_is_read_both_ways_round_has_one_scale(tmp_path: Path) -> None:
    """In an autoencoder whose decoder reads the weight of the encoder, transposed.

    Of scales along what a product sums, ONNX Runtime makes scales of its outputs.
    """
    torch.manual_seed(0)
    model = Function(
        lambda m, x: F.linear(m.encoder(x).relu(), m.encoder.weight.t(), m.bias),
        encoder=nn.Linear(16, 16),
        bias=nn.Parameter(torch.randn(16)),
    )
    model.encoder.weight.data.mul_(torch.logspace(-2, 0, 16)[:, None])
    x = torch.randn(64, 16)
    (weight,) = planned(model, inputs=x).weights
    assert weight.spec.axis is None
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", x)
    executed = torch.from_numpy(run_file(file, x)[0])
    expected = quantized(x)
    assert (executed - expected).norm() < 3e-3 * expected.norm()  # a sum in 1,024 on another step


def test_a_weight_from_the_left_has_one_scale_for_no_runtime_takes_more(tmp_path: Path) -> None:
    weight = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    model = Function(lambda m, x: m.weight @ x, weight=nn.Parameter(weight))
    (planned_weight,) = planned(model, inputs=torch.ones(2, 3, 4)).weights
    assert planned_weight.spec.axis is None
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))
    quantized = nncfx.quantize(model, [x])
    file = nncfx.export_onnx(quantized, tmp_path / "x.onnx", x)
    kernels = integer_kernels(file.path, x)
    assert (len(kernels.integer), len(kernels.float)) == (1, 0)
    assert_file_agrees(file.path, quantized, x, rtol=0, atol=1e-5)


class Assigned(nn.Module):
    """Layers that write their outputs into parts of one tensor, which another layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.last = nn.Linear(3, 2), nn.Linear(3, 4), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.zeros(len(x), 6)
        joined[:, :2] = self.left(x)
        joined[:, 2:] = self.right(x)
        return self.last(joined)


def test_what_was_assigned_part_by_part_is_quantized_where_it_is_read() -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    plan = planned(Assigned(), inputs=x)
    assert [str(one) for one in plan.activations[-1].sites] == [
        "Assigned/Linear[last]/linear_0|INPUT0"
    ]
    model = Assigned().eval()
    expected = model(x)
    quantized = nncfx.quantize(model, [x])
    assert 0 < (quantized(x) - expected).norm() < 0.02 * expected.norm()


def relu(m: Function, x: Tensor) -> Tensor:
    x = m.first(x)
    x.relu_()
    return m.last(x)


def padded(m: Function, x: Tensor) -> Tensor:
    batch = torch.zeros(len(x), 6, 8)
    for one, place in zip(x, batch, strict=True):
        place[:, :5].copy_(one)
    return m.last(batch)


@pytest.mark.parametrize("forward", [relu, padded])
def test_what_a_statement_changes_is_quantized_where_it_is_read(
    forward: Callable[[Function, Tensor], Tensor], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5)
    model = Function(forward, first=nn.Conv1d(6, 6, 1), last=nn.Conv1d(6, 2, 1))
    quantized = nncfx.quantize(model, [x])
    path = tmp_path / "model.onnx"
    nncfx.export_onnx(quantized, path, x, dynamic_batch=False)
    assert not nncfx.export.qdq_violations(path)


@pytest.mark.parametrize(
    ("clamp", "place"),
    [
        (lambda x: torch.clamp(x, max=1.0), "clamp_0"),
        (lambda x: torch.clamp_max(x, 1.0), "clamp_max_0"),
        (lambda x: x.clamp_max_(1.0), "clamp_max__0"),
        (lambda x: torch.clamp_min(x, 0.0), "clamp_min_0"),
    ],
)
def test_a_bound_goes_into_the_quantizer_however_it_is_spelt(
    clamp: Callable[[Tensor], Tensor], place: str
) -> None:
    class Bounded(Net):
        def forward(self, x: Tensor) -> Tensor:
            return self.other(clamp(self.conv(x)))

    assert names(planned(Bounded()))[1:] == [
        f"Bounded/{place}|OUTPUT0",
        "Bounded/Conv2d[other]/conv2d_0|OUTPUT0",
    ]


@pytest.mark.parametrize("product", [torch.sparse.mm, torch.mm, torch.matmul])
@pytest.mark.parametrize("is_buffer", [True, False])
def test_a_product_of_a_sparse_tensor_stays_in_float(
    product: Callable[[Tensor, Tensor], Tensor], *, is_buffer: bool
) -> None:
    class GraphLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
            self.register_buffer("edges", torch.eye(6).to_sparse())

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return self.b(product(self.edges if is_buffer else edges, self.a(x).relu()))

    inputs = (torch.randn(6, 8), torch.eye(6).to_sparse())
    model = nncfx.quantize(GraphLayers().eval(), [inputs])
    assert len(model.nncf.hooks) == 4  # the inputs and the weights of both layers
    expected = GraphLayers().eval()(*inputs)
    torch.testing.assert_close(model(*inputs), expected, rtol=0, atol=0.02)


def _gated(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def test_layers_round_what_no_call_that_is_seen_has_made() -> None:
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        gate = torch.jit.script(_gated)

    class Scripted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.table, self.last = (nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            return self.last(gate(self.first(x))) + self.table(torch.arange(8.0))

    found = names(planned(Scripted(), inputs=torch.randn(4, 8)))
    for layer in ("table", "last"):
        assert f"Scripted/Linear[{layer}]/linear_0|INPUT0" in found
