"""Promises of nncfx.tracing.record.tracer."""

from typing import Any

import networkx as nx
import pytest
import torch
from torch import nn

from nncfx.errors import ArgumentError, NNCFXError, TracingError
from nncfx.graph import NNCFGraph, TensorInfo, total_macs
from nncfx.tracing import TracedCall, trace
from small_models import Applied, Case, Function, inputs, make


def test_lenet_has_the_addresses_of_nncf() -> None:
    # facts/nncf.md, section 6
    assert trace(make("LeNet"), inputs("LeNet")).addresses == [
        "LeNet/Conv2d[conv1]/conv2d_0",
        "LeNet/relu_0",
        "LeNet/max_pool2d_0",
        "LeNet/Conv2d[conv2]/conv2d_0",
        "LeNet/relu_1",
        "LeNet/max_pool2d_1",
        "LeNet/view_0",
        "LeNet/Linear[fc1]/linear_0",
        "LeNet/relu_2",
        "LeNet/Linear[fc2]/linear_0",
    ]


def test_nested_modules_operators_and_in_place_calls_are_spelt_as_nncf_does() -> None:
    assert trace(make("Mixed"), inputs("Mixed")).addresses == [
        "Mixed/ModuleList[blocks]/Linear[0]/linear_0",
        "Mixed/relu_0",
        "Mixed/ModuleList[blocks]/Sequential[1]/Linear[0]/linear_0",
        "Mixed/ModuleList[blocks]/Sequential[1]/ReLU[1]/relu_0",
        "Mixed/__mul___0",
        "Mixed/BatchNorm1d[norm]/batch_norm_0",
        "Mixed/__iadd___0",
        "Mixed/__sub___0",
        "Mixed/relu__0",
        "Mixed/chunk_0",
        "Mixed/cat_0",
    ]


def test_a_shared_module_counts_its_calls() -> None:
    addresses = trace(make("Shared"), inputs("Shared")).addresses
    assert [one for one in addresses if "linear" in one] == [
        f"Shared/Linear[layer]/linear_{number}" for number in range(3)
    ]


def test_attention_is_taken_apart_and_connected() -> None:
    graph = trace(make("Attention"), inputs("Attention"))
    scope = "TransformerEncoderLayer/MultiheadAttention[self_attn]"
    assert f"{scope}/scaled_dot_product_attention_0" in graph.addresses
    assert graph.find(f"{scope}/linear_0").parameters[1] == "self_attn.in_proj_weight"


def test_every_operation_lies_between_input_and_output(case: Case) -> None:
    graph = trace(case.make(), case.inputs)
    drawn = graph.to_networkx()
    assert nx.is_directed_acyclic_graph(drawn)
    assert len(set(graph.addresses)) == len(graph.addresses)
    for index in range(len(graph.outputs)):
        assert nx.has_path(drawn, "/nncf_model_input_0", f"/nncf_model_output_{index}")


def test_tracing_twice_gives_equal_graphs(case: Case) -> None:
    model = case.make()
    assert trace(model, case.inputs) == trace(model, case.inputs)


def test_parameters_are_inputs_with_names() -> None:
    conv = trace(make("LeNet"), inputs("LeNet")).find("LeNet/Conv2d[conv1]/conv2d_0")
    assert dict(conv.parameters) == {1: "conv1.weight", 2: "conv1.bias"}
    assert conv.inputs == tuple(
        TensorInfo(shape, "float32") for shape in [(1, 1, 32, 32), (6, 1, 5, 5), (6,)]
    )
    assert conv.outputs == (TensorInfo((1, 6, 28, 28), "float32"),)
    assert (conv.module, conv.module_type, conv.index) == ("conv1", "Conv2d", 0)


def test_a_parameter_used_by_an_operator_is_an_input_with_a_name() -> None:
    product = trace(make("Mixed"), inputs("Mixed")).find("Mixed/__mul___0")
    assert dict(product.parameters) == {1: "scale"}


def test_a_shared_weight_is_named_as_its_reader_has_it() -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    graph = trace(nn.Sequential(embedding, head), torch.tensor([1]))
    assert [one.parameters[1] for one in graph.operations] == ["0.weight", "1.weight"]


def test_ports_of_a_chunk_reach_the_ports_of_a_cat() -> None:
    edges = trace(make("Mixed"), inputs("Mixed")).incoming("Mixed/cat_0")
    assert [(edge.source, edge.source_port, edge.target_port) for edge in edges] == [
        ("Mixed/chunk_0", 0, 0),
        ("Mixed/chunk_0", 1, 1),
        ("/nncf_model_input_0", 0, 2),
    ]


def test_constructors_and_utilities_are_no_operations_and_break_no_path() -> None:
    model = Applied(lambda x: torch.relu(x.data) + torch.ones_like(x) * x.new_zeros(1))
    graph = trace(model, torch.zeros(2))
    assert graph.addresses == ["Applied/relu_0", "Applied/__mul___0", "Applied/__add___0"]
    assert [edge.target for edge in graph.outgoing("/nncf_model_input_0")] == ["Applied/relu_0"]


def test_a_change_through_a_view_is_seen_by_who_reads_the_whole() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y[:, 0].add_(1)
            y[:, 1] = 0
            return torch.relu(y)

    graph = trace(Model(), torch.zeros(2, 2))
    (edge,) = graph.incoming("Model/relu_0")
    assert edge.source == "Model/__setitem___0"
    assert nx.has_path(graph.to_networkx(), "Model/__iadd___0", "Model/relu_0")


def test_a_module_reached_past_its_parent_is_in_the_scope_by_its_class() -> None:
    class Caller(nn.Module):
        def __init__(self, other: nn.Module) -> None:
            super().__init__()
            self.others = (other,)  # no child: a tuple does not register

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.others[0](x)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Tanh()
            self.caller = Caller(self.act)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.caller(x)

    (operation,) = trace(Model(), torch.zeros(1)).operations
    assert operation.address == "Model/Caller[caller]/Tanh/tanh_0"
    assert operation.module == "act"


def test_the_calls_of_an_unregistered_module_are_its_callers() -> None:
    model = Applied(lambda x: nn.Tanh()(x.abs()))
    assert trace(model, torch.zeros(1)).addresses == ["Applied/abs_0", "Applied/tanh_0"]


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(*, training: bool) -> None:
    model = make("Mixed").train(training)
    model.get_submodule("blocks.0").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flags = [module.training for module in model.modules()]
    random = torch.get_rng_state()
    trace(model, inputs("Mixed"), train=True)
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(
        module._forward_hooks or module._forward_pre_hooks for module in model.modules()
    )


def test_tracing_is_in_evaluation_mode_unless_asked() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) if self.training else torch.tanh(x)

    assert trace(Model().train(), torch.zeros(1)).addresses == ["Model/tanh_0"]
    assert trace(Model().eval(), torch.zeros(1), train=True).addresses == ["Model/relu_0"]


def test_on_the_meta_device_the_graph_is_the_same() -> None:
    on_meta = trace(make("LeNet").to("meta"), inputs("LeNet").to("meta"))
    assert on_meta == trace(make("LeNet"), inputs("LeNet"))


class _Watcher:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_input(self, tensor: torch.Tensor) -> None:
        self.seen.append(("input", tuple(tensor.shape)))

    def on_call(self, call: TracedCall) -> None:
        names = [
            call.parameter_names[id(one)] for one in call.args if id(one) in call.parameter_names
        ]
        self.seen.append((call.operation and call.operation.function, names))

    def on_output(self, tensor: torch.Tensor) -> None:
        self.seen.append(("output", tuple(tensor.shape)))


def test_observers_see_every_tensor_producing_call_in_order() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(-1, x.shape[-1]) * m.scale
        x += torch.zeros(1)
        return x

    model = Function(forward, scale=nn.Parameter(torch.ones(1)))
    watcher = _Watcher()
    trace(model, torch.zeros(3), [watcher])
    assert watcher.seen == [
        ("input", (3,)),
        ("reshape", []),
        ("__mul__", ["scale"]),
        (None, []),
        ("__iadd__", []),
        ("output", (1, 3)),
    ]


def test_refused_inputs_are_explained_with_the_models_own_error() -> None:
    model = make("LeNet")
    with pytest.raises(TracingError, match="LeNet refuses the example inputs") as caught:
        trace(model, torch.zeros(1, 3, 32, 32))
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_model_without_tensor_output_is_refused() -> None:
    model = Applied(lambda x: str(x.shape))
    with pytest.raises(TracingError, match="returned a str without any tensor"):
        trace(model, torch.zeros(1))


def test_an_error_of_ours_inside_the_forward_stays_what_it_is() -> None:
    class Refusing(_Watcher):
        def on_call(self, call: TracedCall) -> None:
            raise NNCFXError(call.func)

    with pytest.raises(NNCFXError) as caught:
        trace(nn.ReLU(), torch.zeros(1), [Refusing()])
    assert type(caught.value) is NNCFXError


def test_inputs_in_no_accepted_form_are_refused() -> None:
    with pytest.raises(ArgumentError, match="example_inputs is a int"):
        trace(nn.ReLU(), 3)  # type: ignore[arg-type]  # what is tested


class Contraction(nn.Module):
    """An einsum, once with its equation and once with lists of axes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("ij,kj->ik", x, x) + torch.einsum(x, [0, 1], x, [2, 1], [0, 2])


def test_an_einsum_is_traced_with_its_equation() -> None:
    # 2x4 by 4x2, twice
    graph = trace(Contraction(), torch.ones(2, 4))
    assert graph.find("Contraction/einsum_0").equation == "ij,kj->ik"
    assert total_macs(graph) == 2 * (2 * 2 * 4)
    assert NNCFGraph.from_json(graph.to_json()) == graph


class _Folding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.folded = (nn.Linear(3, 3, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.folded.weight.data = self.wide.weight.data + self.narrow.weight.data
        return self.folded(x)


def test_a_weight_whose_data_is_set_is_computed() -> None:
    graph = trace(_Folding(), torch.ones(1, 3))
    product = graph.find("_Folding/Linear[folded]/linear_0")
    assert product.parameters == {}
    weight = next(one for one in graph.incoming(product.address) if one.target_port == 1)
    assert weight.source == "_Folding/__add___0"
    assert set(graph.find("_Folding/__add___0").parameters.values()) == {
        "wide.weight",
        "narrow.weight",
    }
