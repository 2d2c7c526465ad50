"""The public names, and what they do to a model."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import nncfx
from nncfx import quantization

GOLDEN = [
    "Compressor",
    "NNCFConfig",
    "__version__",
    "benchmark",
    "create_compressed_model",
    "errors",
    "export_onnx",
    "load",
    "no_nncf_trace",
    "objectives",
    "quantize",
    "save",
    "schemes",
    "search",
    "storage",
    "strip",
    "thin",
    "unwrap",
    "wrap",
]


def test_completion_offers_what_the_front_door_has_and_no_internals() -> None:
    offered = dir(nncfx)
    assert {*GOLDEN, "quantization", "trace"} <= set(offered)
    internal = {"_HOMES", "importlib", "renamed", "TYPE_CHECKING", "attribute"}
    assert not internal & set(offered)
    assert all(hasattr(nncfx, one) for one in offered)


def test_the_public_names_are_these_sorted_and_under_twenty() -> None:
    assert nncfx.__all__ == GOLDEN == sorted(GOLDEN)
    assert len(GOLDEN) < 20


@pytest.mark.parametrize("name", GOLDEN)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(nncfx, name) is not None


def test_the_best_strategy_of_a_log_is_reachable_beside_the_public_names() -> None:
    assert nncfx.best_strategy is nncfx.hago.best_strategy


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'Compressor'"):
        _ = nncfx.Compresor


def test_names_that_people_guess_are_there_or_pointed_to() -> None:
    assert nncfx.trace is nncfx.tracing.trace
    assert nncfx.quantize_weights is nncfx.quantization.quantize_weights
    with pytest.raises(AttributeError, match=r"nncfx\.thin"):
        _ = nncfx.prune
    with pytest.raises(AttributeError, match=r"nncfx\.quantize_weights"):
        _ = nncfx.compress_weights
    for name, place in {
        "qat": "create_compressed_model",
        "PTQ": r"nncfx\.quantize\(",
        "distill": "knowledge_distillation",
        "save_model": r"nncfx\.save",
        "flops": r"objectives\.macs",
        "convert": r"nncfx\.strip",
        "export_causal_lm": r"nncfx\.export\.export_causal_lm",
        "CausalLM": r"nncfx\.runtimes\.CausalLM",
        "Prune": r"nncfx\.schemes\.Prune",
        "Minimize": r"nncfx\.objectives\.Minimize",
    }.items():
        with pytest.raises(AttributeError, match=place):
            getattr(nncfx, name)


X = torch.linspace(-1, 1, 96).reshape(2, 3, 4, 4)


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 32))
    return nn.Sequential(*layers, nn.LayerNorm(32), nn.Linear(32, 4))


def everything(model: nn.Module) -> list[Any]:
    """What a user could see change: classes, modes, values, hooks, attributes."""
    parts: list[Any] = []
    for name, one in model.named_modules():
        # the last one counts insertions; the hooks themselves are in the store beside it
        tables = {"_parameters", "_buffers", "_modules", "_nncf_state"}
        parts += [
            name,
            type(one),
            {key: str(one.__dict__[key]) for key in set(vars(one)) - tables},
        ]
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return [*parts, {name: (one.tolist(), one.requires_grad) for name, one in tensors.items()}]


def options() -> quantization.QuantizeOptions:
    return quantization.QuantizeOptions(equalize=True, smooth=True, correct_biases=True)


LEAVES_ALONE: dict[str, Callable[[Any, Path], object]] = {
    "quantize": lambda model, _: nncfx.quantize(model, [X], options=options()),
    "quantize_weights": lambda model, _: quantization.quantize_weights(model, [X], method="gptq"),
    "quantize_with_accuracy_control": lambda model, _: quantization.quantize_with_accuracy_control(
        model, [X], lambda _: 1.0, max_drop=0.1
    ),
    "quantize_mixed": lambda model, _: quantization.quantize_mixed(
        model, [X], quantization.Bytes(3000), options=options()
    ),
    "thin": lambda model, _: nncfx.thin(model, X),
    "strip": lambda model, _: nncfx.strip(model),
    "benchmark": lambda model, _: nncfx.benchmark(model, X, "torch", seconds=0.01),
    "export_onnx": lambda model, folder: nncfx.export_onnx(model, folder / "m.onnx", X),
    "save": lambda model, folder: nncfx.save(folder / "m.safetensors", model),
    "layer_sensitivities": lambda model, _: quantization.layer_sensitivities(model, [X]),
    "quantization_errors": lambda model, _: quantization.quantization_errors(model, [X]),
}
WORKS_IN_PLACE = {
    "wrap": "itself",
    "unwrap": "itself",
    "create_compressed_model": "the same `model`",
    "load": "changed in place",
    "correct_biases": "in place",
    "equalize_layers": "in place",
    "fold_batch_norms": "in place",
    "integer_arithmetic": "inside the block",
    "round_weights": "in place",
    "separate_experts": "return it",
    "smooth_layers": "in place",
}
"""What their documentation has to say about it."""

OF_TRANSFORMERS = {"prune_blocks", "quantize_blocks", "rotate", "unpack_weights"}
"""Functions of language models or of layers of codes; they say that they return a copy."""

QUANTIZED = {"layer_sensitivities", "quantization_errors"}


@pytest.mark.parametrize("name", LEAVES_ALONE)
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_function_leaves_its_model_alone(name: str, is_wrapped: bool, tmp_path: Path) -> None:
    model = convolutional()
    if name in QUANTIZED:
        model = nncfx.quantize(model, [X])
    elif is_wrapped or name in {"strip", "save"}:
        nncfx.wrap(model, X)
    before = everything(model)
    LEAVES_ALONE[name](model, tmp_path)
    assert everything(model) == before


def test_every_function_that_takes_a_model_leaves_it_alone_or_says_otherwise() -> None:
    found = set()
    for home in (nncfx, quantization):
        for name in home.__all__:
            one = getattr(home, name)
            if inspect.isfunction(inspect.unwrap(one)) and {"model", "model_or_path"} & set(
                inspect.signature(one).parameters
            ):
                found.add(name)
                told = "copy of" if name in OF_TRANSFORMERS else WORKS_IN_PLACE.get(name, "")
                assert told in inspect.getdoc(one)
    assert found == set(LEAVES_ALONE) | set(WORKS_IN_PLACE) | OF_TRANSFORMERS


def test_a_script_beside_a_clone_of_that_name_imports_the_package(tmp_path: Path) -> None:
    (tmp_path / "nncfx" / "nncfx").mkdir(parents=True)  # as `git clone` leaves it
    script = tmp_path / "script.py"
    script.write_text("import nncfx\nnncfx.quantize\n")
    subprocess.run([sys.executable, script], check=True)
