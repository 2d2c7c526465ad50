"""The public names, and what importing them costs."""

import subprocess
import sys

import pytest

import nncfx

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


def test_functions_are_not_replaced_by_packages_of_their_name() -> None:
    code = (
        "import nncfx.runtimes, nncfx.thinning, nncfx.storage, nncfx.compressor, nncfx.export\n"
        "import nncfx\n"
        "assert callable(nncfx.benchmark) and callable(nncfx.thin) and callable(nncfx.load)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_nncfx_imports_no_optional_package() -> None:
    heavy = ["botorch", "gpytorch", "onnx", "onnxscript", "onnxruntime", "openvino"]
    heavy += ["tensorrt", "matplotlib", "sklearn", "typer"]
    code = f"import sys, nncfx; found = set({heavy}) & set(sys.modules); assert not found, found"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_work_that_needs_no_extra_imports_none() -> None:
    code = (
        "import sys, torch, nncfx\n"
        "model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2))\n"
        "nncfx.thin(nncfx.wrap(model, torch.ones(1, 2)), torch.ones(1, 2))\n"
        "found = {'botorch', 'onnx', 'onnxruntime', 'matplotlib'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
