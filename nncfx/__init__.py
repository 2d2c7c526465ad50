"""Make trained PyTorch models smaller and faster within an accuracy budget, and prove it.

The names below are the public entry points; their modules are imported on first use, so `import
nncfx` costs almost nothing and imports no optional package.
"""

import importlib
from typing import TYPE_CHECKING

from nncfx._version import __version__
from nncfx.renamed import RENAMED, attribute, install

if TYPE_CHECKING:
    from nncfx import errors, objectives, schemes, search, storage
    from nncfx.api import benchmark
    from nncfx.compressor import Compressor
    from nncfx.config import NNCFConfig
    from nncfx.export import export_onnx
    from nncfx.hago import best_strategy as best_strategy
    from nncfx.network import strip, unwrap, wrap
    from nncfx.quantization import quantize
    from nncfx.quantization import quantize_weights as quantize_weights
    from nncfx.thinning import thin
    from nncfx.tracing import no_nncf_trace
    from nncfx.tracing import trace as trace
    from nncfx.training import create_compressed_model, load, save

__all__ = [
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

_HOMES = {
    "Compressor": "nncfx.compressor",
    "NNCFConfig": "nncfx.config",
    "benchmark": "nncfx.api",
    "best_strategy": "nncfx.hago",
    "create_compressed_model": "nncfx.training",
    "export_onnx": "nncfx.export",
    "load": "nncfx.training",
    "no_nncf_trace": "nncfx.tracing",
    "quantize": "nncfx.quantization",
    "quantize_weights": "nncfx.quantization",
    "save": "nncfx.training",
    "strip": "nncfx.network",
    "thin": "nncfx.thinning",
    "trace": "nncfx.tracing",
    "unwrap": "nncfx.network",
    "wrap": "nncfx.network",
}
_PACKAGES = frozenset(
    {
        "algorithms",
        "channels",
        "compressor",
        "config",
        "controllers",
        "errors",
        "evidence",
        "export",
        "graph",
        "hago",
        "integrations",
        "lc",
        "network",
        "objectives",
        "operators",
        "quantization",
        "reorder",
        "report",
        "runtimes",
        "schemes",
        "search",
        "storage",
        "targets",
        "tasks",
        "testing",
        "thinning",
        "tracing",
        "training",
    }
)

install()


def __getattr__(name: str) -> object:
    """Import a public name on first access (PEP 562)."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _PACKAGES:
        return importlib.import_module(f"nncfx.{name}")
    if f"nncfx.{name}" in RENAMED:
        return attribute(__name__, name)
    from nncfx.errors import did_you_mean

    guess = did_you_mean(name, [*__all__, *_PACKAGES])
    if not name.startswith("_"):
        guess = _place(name) or guess
    raise AttributeError(f"nncfx has no '{name}'.{guess}")


def _place(name: str) -> str:
    from nncfx.guesses import home_of

    if home := home_of(name):
        return home
    from nncfx.controllers.base.nncf_names import instead_of

    return instead_of(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_HOMES, *_PACKAGES})
