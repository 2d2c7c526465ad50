"""Promises of nncfx.renamed: old names work on, and a warning names the new place."""

import importlib
import pickle
import re
import sys
import warnings

import pytest

from nncfx.renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_the_new_one_and_says_so(old: str, new: str) -> None:
    home, _, name = old.rpartition(".")
    sys.modules.pop(old, None)
    with warnings.catch_warnings(action="ignore"):
        vars(importlib.import_module(home)).pop(name, None)
    with pytest.warns(DeprecationWarning, match=re.escape(f"{old} is now {new};")) as caught:
        found = _imported(old) if home in RENAMED else getattr(_imported(home, name), name)
    assert caught[0].filename == __file__
    package = __import__(new.rpartition(".")[0], fromlist=[new.rpartition(".")[2]])
    assert found is getattr(package, new.rpartition(".")[2])


def _imported(module: str, *names: str) -> object:
    __import__(module, fromlist=names)
    return sys.modules[module]


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'nncfx.tracing' has no attribute 'trees'"):
        _ = importlib.import_module("nncfx.tracing").trees
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'nncfx.tracing.trees'"):
        importlib.import_module("nncfx.tracing.trees")


@pytest.mark.parametrize(
    "place",
    [
        "algorithms.knowledge_distillation Teacher",
        "algorithms.magnitude_sparsity MagnitudeSparsityController",
        "algorithms.movement_sparsity MovementMask",
        "algorithms.quantization QuantizationController",
        "algorithms.rb_sparsity LearnedMask",
        "algorithms.weight_clustering ClusterHook",
        "config.algorithms.pruning FilterPruningConfig",
        "config.algorithms.pruning PruningParams",
        "config.algorithms.sparsity RBSparsityConfig",
        "config.algorithms.sparsity SparsityParams",
        "lc.controller CompressedWeight",
    ],
)
def test_a_pickle_of_before_finds_its_classes(place: str) -> None:
    module, name = place.split()
    with warnings.catch_warnings(action="ignore"):
        found = pickle.loads(f"cnncfx.{module}\n{name}\n.".encode())  # noqa: S301
    assert found.__name__ == name
