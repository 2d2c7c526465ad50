"""Modules and names that moved: old names still work, with a warning that gives the new name.

The table contains names from public documentation, and classes that a pickled model refers to.
"""

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

__all__ = ["RENAMED", "attribute", "install"]

_SAME_NAME: Final = {
    ("nncfx.config", "nncfx.algorithms"): """
        BlockPruningConfig BlockPruningParams BranchPruningConfig ChannelPruningConfig
        ChannelPruningParams ConstSparsityConfig FilterPruningConfig FilterPruningParams
        HeadPruningConfig KnowledgeDistillationConfig MagnitudeSparsityConfig
        MagnitudeSparsityParams MovementSparsityConfig MovementSparsityParams
        NMSparsityConfig NMSparsityParams NeuronPruningConfig QuantizationConfig
        RBSparsityConfig RBSparsityParams SparseStructure StructurePruningConfig
        WeightClusteringConfig WeightClusteringParams
    """,
    ("nncfx.config", "nncfx.lc"): "LCConfig LCParams",
    ("nncfx.quantization", "nncfx.quantization.grid"): "quantizer spec",
    ("nncfx.storage", "nncfx.storage.codecs"): "ans huffman",
    ("nncfx.thinning", "nncfx.thinning.forward"): "graph_data graph_form",
    ("nncfx.tracing", "nncfx.network"): "NNCFNetwork network strip unwrap wrap",
    ("nncfx.tracing", "nncfx.tracing.hooks"): """
        activation_hooks boundary_hooks carried_state dynamic_class sites
    """,
}
RENAMED: Final = {
    "nncfx.compressor.evidence": "nncfx.evidence",
    "nncfx.config.algorithms": "nncfx.algorithms",
    "nncfx.config.algorithms.block_pruning": "nncfx.algorithms.block_pruning.config",
    "nncfx.config.algorithms.distillation": "nncfx.algorithms.knowledge_distillation.config",
    "nncfx.config.algorithms.lc": "nncfx.lc.config",
    "nncfx.config.algorithms.movement": "nncfx.algorithms.movement_sparsity.config",
    "nncfx.config.algorithms.pruning": "nncfx.algorithms.channel_pruning.config",
    "nncfx.config.algorithms.quantization": "nncfx.algorithms.quantization.config",
    "nncfx.config.algorithms.sparsity": "nncfx.algorithms",
    "nncfx.config.algorithms.weight_clustering": "nncfx.algorithms.weight_clustering.config",
    "nncfx.controllers.living_norms": "nncfx.algorithms.channel_pruning.masked_norm_statistics",
    "nncfx.controllers.masking": "nncfx.controllers.masks.masking",
    "nncfx.export.channel_placement": "nncfx.reorder.placement",
    "nncfx.export.channel_selection": "nncfx.reorder.selection",
    "nncfx.hardware": "nncfx.targets",
    "nncfx.quantization.GATE_STEPS": "nncfx.quantization.SIGMOID_STEPS",
    "nncfx.quantization.from_config": "nncfx.algorithms.quantization.from_config",
    "nncfx.search.Curve": "nncfx.search.PosteriorCurve",
    "nncfx.search.is_hopeless": "nncfx.search.should_stop_early",
    "nncfx.storage.narrow_attention": "nncfx.storage.models.narrow_attention",
    "nncfx.tasks.Plan": "nncfx.tasks.TaskPlan",
    "nncfx.thinning.structure": "nncfx.thinning.files.model_structure",
    "nncfx.tracing.analyze_channels": "nncfx.channels.analyze_channels",
    "nncfx.tracing.hook_chain": "nncfx.tracing.hooks.chain",
    "nncfx.tracing.hook_store": "nncfx.tracing.hooks.store",
    "nncfx.tracing.module_stack": "nncfx.tracing.calls.module_stack",
    **{
        f"{old}.{name}": f"{new}.{name}"
        for (old, new), names in _SAME_NAME.items()
        for name in names.split()
    },
}
"""Old dotted names of modules, and of names that packages re-exported, to the new ones."""


def attribute(package: str, name: str) -> object:
    """Return the object that `package` had under this name; for the `__getattr__` of a package.

    Raises:
        AttributeError: there never was such a name.
    """
    if (new := RENAMED.get(old := f"{package}.{name}")) is None:
        raise AttributeError(f"module '{package}' has no attribute '{name}'")
    _warn(old, new, level=4)
    home, _, attribute_name = new.rpartition(".")
    return getattr(importlib.import_module(home), attribute_name)


def install() -> None:
    """Install a finder that imports modules by their old names."""
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """A finder and loader; comes first, since an old folder of caches would count as a package.

    It does not inherit from `importlib.abc`, whose import takes longer than that of all of nncfx.
    """

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        known = fullname in RENAMED
        return ModuleSpec(fullname, self) if known else None  # type: ignore[arg-type]  # no `load_module`, which is deprecated

    def create_module(self, _: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        _warn(old, RENAMED[old], level=3)
        sys.modules[old] = importlib.import_module(RENAMED[old])


def _warn(old: str, new: str, *, level: int) -> None:
    import warnings

    message = f"{old} is now {new}; the old name will go. Import the new one."
    warnings.warn(message, DeprecationWarning, stacklevel=level)
