"""What stands in a package is imported at its first use, and nothing that is not needed."""

import subprocess
import sys
import textwrap

import pytest

from nncfx import algorithms, lc
from nncfx.lazy import names_of


@pytest.mark.parametrize("package", [algorithms, lc])
def test_all_public_names_are_found(package: object) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


CODES = {
    "modules in their order until one has the name": """
        from nncfx.algorithms import nm_sparsity
        nm_sparsity.NMSparsityConfig
        home = "nncfx.algorithms.nm_sparsity"
        found = set() if f"{home}.config" in sys.modules else {"no config"}
        found |= {f"{home}.builder"} & set(sys.modules)
        """,
    "no compiler": """
        import nncfx.compressor, nncfx.quantization, nncfx.thinning
        found = {"torch._dynamo"} & set(sys.modules)
        """,
    "no optional package": """
        import nncfx
        optional = {"botorch", "gpytorch", "onnx", "onnxscript", "onnxruntime", "openvino"}
        optional |= {"tensorrt", "matplotlib", "sklearn", "typer"}
        found = optional & set(sys.modules)
        """,
    "none either for work that needs none": """
        import torch, nncfx
        model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 2))
        nncfx.thin(nncfx.wrap(model, torch.ones(1, 2)), torch.ones(1, 2))
        found = {"botorch", "onnx", "onnxruntime", "matplotlib"} & set(sys.modules)
        """,
    "no torch to ask for a name": """
        import nncfx
        hasattr(nncfx, "CausalLM")
        found = {"torch"} & set(sys.modules)
        """,
    "no torch for evidence": """
        sys.modules["torch"] = None
        import nncfx.evidence
        found = None
        """,
    "no torch for configs": """
        sys.modules["torch"] = None
        from nncfx.config import NNCFConfig, algorithm_configs
        schema = str(NNCFConfig.schema())
        found = {name for name in algorithm_configs() if name not in schema}
        """,
    "functions stay where packages have their names": """
        import nncfx.runtimes, nncfx.thinning, nncfx.storage, nncfx.compressor, nncfx.export
        found = {one for one in ("benchmark", "thin", "load") if not callable(getattr(nncfx, one))}
        """,
    "and tells torch no shapes": """
        import torch, nncfx.quantization
        name = "aten::fake_quantize_per_channel_affine_cachemask"
        found = torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta")
        """,
}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_nncfx_imports(code: str) -> None:
    checked = f"import sys\n{textwrap.dedent(code)}\nassert not found, found"
    subprocess.run([sys.executable, "-c", checked], check=True)


def test_a_name_that_no_module_has_is_told() -> None:
    with pytest.raises(AttributeError, match=r"module 'nncfx\.lc' has no attribute 'Lc'"):
        names_of("nncfx.lc", "config", "builder")("Lc")
