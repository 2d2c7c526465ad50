"""All that takes a module says what it cannot take."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import nncfx
from nncfx.errors import ArgumentError, CompressionError, GraphError, TracingError
from nncfx.quantization import quantize_weights

INPUTS = torch.randn(2, 4)
TAKERS: dict[str, Callable[[nn.Module], object]] = {
    "wrap": lambda model: nncfx.wrap(model, INPUTS),
    "thin": lambda model: nncfx.thin(model, INPUTS),
    "quantize_weights": lambda model: quantize_weights(model, example_inputs=INPUTS),
    "export_onnx": lambda model: nncfx.export_onnx(model, "never.onnx", INPUTS),
}


@pytest.mark.parametrize("name", TAKERS)
def test_what_is_no_module_is_named(name: str) -> None:
    exported = torch.export.export(nn.Linear(4, 2), (INPUTS,))
    message = (
        f"{name} takes an nn.Module, not a ExportedProgram. Pass the module that was exported"
    )
    with pytest.raises(ArgumentError, match=message):
        TAKERS[name](exported)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match=f"{name} takes .* a Tensor. Pass the model itself"):
        TAKERS[name](INPUTS)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(ArgumentError, match=rf"a str. Pass the model first: {name}\(model, "):
        TAKERS[name]("m.onnx")  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("name", TAKERS)
def test_scripts_are_refused(name: str) -> None:
    with pytest.warns(DeprecationWarning, match="torch.jit.trace"):
        script = torch.jit.trace(nn.Linear(4, 2), INPUTS)
    with pytest.raises(TracingError, match=f"{name} cannot take a TopLevelTracedModule"):
        TAKERS[name](script)


@pytest.mark.parametrize("name", [*TAKERS, "trace", "load", "storage.load"])
def test_lazy_modules_without_shapes_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.nncfx"
    takers: dict[str, Callable[[nn.Module], object]] = {
        **TAKERS,
        "trace": lambda model: nncfx.trace(model, INPUTS),
        "load": lambda model: nncfx.load(path, model),
        "storage.load": lambda model: nncfx.storage.load(path, model),
    }
    nncfx.storage.save(path, nn.Sequential(nn.Linear(4, 2)))
    told = f"{name.rpartition('.')[2]} cannot take this Sequential: its module '0' is a LazyLinear"
    with pytest.raises(TracingError, match=f"{told} whose parameters have no shape yet. Run"):
        takers[name](nn.Sequential(nn.LazyLinear(2)))


def test_a_benchmark_takes_paths_and_modules() -> None:
    with pytest.raises(ArgumentError, match="a module or the path of an ONNX file, not a Tensor"):
        nncfx.benchmark(INPUTS, INPUTS)  # type: ignore[arg-type]  # on purpose


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
@pytest.mark.parametrize(
    ("normed", "fix"),
    [
        (nn.utils.parametrizations.weight_norm, "parametrize.remove_parametrizations"),
        (nn.utils.weight_norm, "torch.nn.utils.remove_weight_norm"),
        (nn.utils.spectral_norm, "torch.nn.utils.remove_spectral_norm"),
        (lambda one: prune.l1_unstructured(one, "weight", 0.5), "torch.nn.utils.prune.remove"),
    ],
)
def test_computed_weights_are_told_with_what_makes_parameters_of_them(
    normed: Callable[[nn.Module], nn.Module], fix: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, item = nn.Sequential(normed(nn.Linear(4, 2))), {"algorithm": "magnitude_sparsity"}
    told = rf"A parametrization computes the weight of '0': .*{fix}"
    with pytest.raises(CompressionError, match=told):
        nncfx.create_compressed_model(model, {"compression": item}, INPUTS)
    with pytest.raises(GraphError, match=told):
        quantize_weights(model, example_inputs=INPUTS)
    mixed = nn.Sequential(normed(nn.Linear(4, 4)), nn.Linear(4, 2))
    quantize_weights(mixed, example_inputs=INPUTS)
    nncfx.create_compressed_model(mixed, {"compression": item}, INPUTS)
    assert len(re.findall(told, caplog.text)) == 2
