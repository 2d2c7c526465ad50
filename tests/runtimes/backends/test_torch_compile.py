"""torch.compile: what it refuses, and that it never runs eagerly without a word."""

import pytest
import torch
import torch._dynamo.backends.registry
from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.runtimes import BuildOptions, runtime_named


def test_an_unknown_setting_gets_the_nearest() -> None:
    with pytest.raises(
        RuntimeFailure, match=r"no torch_compile setting 'modes'. Did you mean 'mode'\?"
    ):
        runtime_named("torch_compile").build(nn.ReLU(), BuildOptions(settings=(("modes", "x"),)))


@pytest.mark.parametrize("name", ["aot_inductor", "torch_compile"])
def test_a_profile_is_refused(name: str) -> None:
    with pytest.raises(RuntimeFailure, match="keeps no profile"):
        runtime_named(name).build(nn.ReLU(), BuildOptions(profile=True))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[torch.fx.GraphModule]:
    """The graphs that the backend "counting" has been given."""
    graphs = []

    def counting(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    registry = torch._dynamo.backends.registry
    monkeypatch.setitem(registry._BACKENDS, "counting", None)
    monkeypatch.setitem(registry._COMPILER_FNS, "counting", counting)
    return graphs


COUNTING = BuildOptions(settings=(("backend", "counting"),))


def test_it_compiles_when_inputs_are_bound_and_only_then(
    compiled: list[torch.fx.GraphModule],
) -> None:
    with runtime_named("torch_compile").build(nn.Linear(2, 2), COUNTING) as session:
        call = session.bind(torch.zeros(2, 2))
        assert len(compiled) == 1
        call()
        session.bind(torch.zeros(3, 2))()
    assert len(compiled) == 2


def test_more_variants_of_a_class_than_torch_compiles_by_default_are_all_compiled(
    compiled: list[torch.fx.GraphModule],
) -> None:
    class Scaled(nn.Module):
        def __init__(self, by: int) -> None:
            super().__init__()
            self.by = by

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.by

    for by in range(12):  # torch's own limit is 8
        with runtime_named("torch_compile").build(Scaled(by), COUNTING) as session:
            assert session.run(torch.ones(1))[0].tolist() == [float(by)]
    assert len(compiled) == 12


def test_a_model_that_does_not_run_says_so_as_in_eager_mode() -> None:
    model = nn.Linear(3, 2)
    with (
        runtime_named("torch_compile").build(model, BuildOptions()) as session,
        pytest.raises(RuntimeFailure, match="mat1 and mat2 shapes cannot be multiplied"),
    ):
        session.run(torch.ones(1, 4))
