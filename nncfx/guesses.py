"""Names that users may guess, and where to find what they mean."""

import ast
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["home_of"]

_QAT: Final = "nncfx.create_compressed_model with the algorithm 'quantization'"
_MEANT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "calibrate": "nncfx.quantize(model, calibration_batches)",
        "compress": "nncfx.Compressor, or nncfx.create_compressed_model in your own loop",
        "checkpoint": "nncfx.save(path, model, controller), or nncfx.training.resumable_epochs",
        "convert": "nncfx.strip(model), or nncfx.export_onnx",
        "count_macs": "nncfx.objectives.macs",
        "distill": "nncfx.create_compressed_model with the algorithm 'knowledge_distillation'",
        "evaluate": "a metric of your own, metric(model, loader); nncfx.benchmark for the time",
        "fine_tune": "nncfx.training.Training, or your own loop",
        "flops": "nncfx.objectives.macs",
        "inspect": "nncfx.wrap(model, example_inputs).nncf.graph, or the command 'nncfx inspect'",
        "latency": "nncfx.benchmark, or nncfx.objectives.latency in a search",
        "load_model": "nncfx.load(path, model)",
        "prepare": "nncfx.wrap(model, example_inputs)",
        "profile": "nncfx.benchmark, or nncfx.report.compare_layers by layer",
        "ptq": "nncfx.quantize(model, calibration_batches)",
        "qat": _QAT,
        "prepare_qat": _QAT,
        "prune": "nncfx.create_compressed_model with 'filter_pruning' and then nncfx.thin, or "
        "nncfx.Compressor with nncfx.schemes.FilterPrune",
        "pruner": "nncfx.create_compressed_model with 'filter_pruning', then nncfx.thin",
        "resume": "nncfx.training.resumable_epochs, or the command 'nncfx resume'",
        "save_model": "nncfx.save(path, model)",
        "sparsify": "nncfx.create_compressed_model with the algorithm 'magnitude_sparsity'",
        "summary": "the command 'nncfx inspect'",
        "train": "nncfx.training.Training, or nncfx.create_compressed_model in your own loop",
    }
)


def home_of(name: str) -> str:
    """Return where to find what `name` may mean, as a sentence after a space, or "".

    Packages are read as text, so none of them is imported.

    >>> home_of("PTQ")
    " For 'PTQ' use nncfx.quantize(model, calibration_batches)."
    >>> home_of("export_causal_lm")
    ' It is nncfx.export.export_causal_lm.'
    """
    if name in _MEANT:
        return f" For '{name}' use {_MEANT[name]}."
    for package in sorted(Path(__file__).parent.glob("*/__init__.py")):
        if name in _public(package.read_text(encoding="utf-8")):
            return f" It is nncfx.{package.parent.name}.{name}."
    lower = name.lower()
    return f" For '{name}' use {_MEANT[lower]}." if lower in _MEANT else ""


def _public(source: str) -> tuple[str, ...]:
    """Return the contents of `__all__` in a module's source."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            try:
                return tuple(ast.literal_eval(node.value))
            except ValueError:  # computed on import
                return ()
    return ()
