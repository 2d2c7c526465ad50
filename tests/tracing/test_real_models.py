"""The whole of wrapping, on published architectures (weights at random)."""

import gc
import importlib
import tracemalloc
from collections.abc import Callable
from typing import Any, TypeAlias

import networkx as nx
import pytest
import torch
from torch import nn

from language_models import bert
from nncfx.graph import total_macs
from nncfx.network import unwrap, wrap
from nncfx.tracing import Insertion, PostSite, PreSite, WeightSite, run, trace
from nncfx.tracing.calls.tensors import tensors_in

Inputs: TypeAlias = Callable[[str], Any]


def holds(model: nn.Module, inputs: Inputs) -> None:
    """Check that wrapping and no-op hooks change no bit, and that the graph is whole."""
    model.eval()
    with torch.no_grad():
        raw = [one.clone() for one in tensors_in(run(model, inputs))]
        wrapped: Any = wrap(model, inputs)
        graph = wrapped.nncf.graph
        same(raw, run(wrapped, inputs))
        drawn = graph.to_networkx()
        assert nx.is_directed_acyclic_graph(drawn)
        assert len(set(graph.addresses)) == len(graph.addresses)
        for index in range(len(graph.outputs)):
            assert nx.has_path(drawn, "/nncf_model_input_0", f"/nncf_model_output_{index}")
        insertions = []
        for one in graph.operations:
            sites: list[Any] = [WeightSite.of(name) for name in one.parameters.values()]
            if one.function in ("conv2d", "linear"):
                sites += [PreSite(one.address, 0), PostSite(one.address)]
            insertions += [Insertion(site, nn.Identity(), 0, "test") for site in sites]
        wrapped.nncf.register(insertions)
        wrapped.nncf.commit()
        same(raw, run(wrapped, inputs))
        same(raw, run(unwrap(wrapped), inputs))


def same(raw: list[torch.Tensor], result: object) -> None:
    assert all(torch.equal(one, other) for one, other in zip(raw, tensors_in(result), strict=True))


CONVOLUTIONAL = {
    "resnet18": "resnet",
    "mobilenetv2_wd4": "mobilenetv2",
    "squeezenet_v1_1": "squeezenet",
    "shufflenetv2_wd2": "shufflenetv2",
}


def convolutional(name: str, family: str) -> nn.Module:
    module = importlib.import_module(f"pytorchcv.models.{family}")
    return getattr(module, name)()


@pytest.mark.parametrize(("name", "family"), CONVOLUTIONAL.items())
def test_a_convolutional_network_is_wrapped_without_a_trace_in_its_output(
    name: str, family: str
) -> None:
    holds(convolutional(name, family), torch.rand(1, 3, 224, 224))


@pytest.mark.slow  # hundreds of layers
@pytest.mark.parametrize(
    ("name", "family", "size"),
    [("densenet121", "densenet", 224), ("inceptionv3", "inceptionv3", 299)],
)
def test_a_deep_convolutional_network_is_wrapped_without_a_trace_in_its_output(
    name: str, family: str, size: int
) -> None:
    holds(convolutional(name, family), torch.rand(1, 3, size, size))


def test_resnet18_has_its_published_multiply_accumulates() -> None:
    # torchvision documents 1.814 G for ResNet-18 at 224 pixels
    model = convolutional("resnet18", "resnet").to("meta")
    graph = trace(model, torch.empty(1, 3, 224, 224, device="meta"))
    assert round(total_macs(graph) / 1e9, 3) == 1.814


def test_a_bert_is_wrapped_without_a_trace_in_its_output() -> None:
    ids = torch.randint(0, 50, (2, 7))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    holds(bert(), inputs)


@pytest.mark.slow
def test_wrapping_adds_less_than_a_hundredth_of_the_models_memory() -> None:
    mobilenetv2 = pytest.importorskip("pytorchcv.models.mobilenetv2")
    model, x = mobilenetv2.mobilenetv2_w1().eval(), torch.rand(1, 3, 224, 224)
    tensors = sum(one.nbytes for one in (*model.parameters(), *model.buffers()))
    for _ in range(6):  # torch interns names at its first forwards under a mode, and keeps them
        unwrap(wrap(model, x))
    added = []
    for _ in range(3):  # tables of the process, such as that of interned names, may grow in one
        gc.collect()
        tracemalloc.start()
        wrap(model, x)
        gc.collect()
        wrapped = tracemalloc.get_traced_memory()[0]
        unwrap(model)
        gc.collect()
        # what torch and Python keep of a forward in tables of their own, unwrap does not free
        added.append(wrapped - tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
    assert min(added) < 0.01 * tensors
    assert sum(one.nbytes for one in (*model.parameters(), *model.buffers())) == tensors
