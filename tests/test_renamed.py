"""Promises of nncfx.renamed: old names work on, and a warning names the new place."""

import importlib
import re
import sys

import pytest

from nncfx.renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_the_new_one_and_says_so(old: str, new: str) -> None:
    home, _, name = old.rpartition(".")
    sys.modules.pop(old, None)
    vars(importlib.import_module(home)).pop(name, None)
    with pytest.warns(DeprecationWarning, match=re.escape(f"{old} is now {new};")) as caught:
        found = getattr(__import__(home, fromlist=[name]), name)
    assert caught[0].filename == __file__
    package = __import__(new.rpartition(".")[0], fromlist=[new.rpartition(".")[2]])
    assert found is getattr(package, new.rpartition(".")[2])


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'nncfx.tracing' has no attribute 'trees'"):
        _ = importlib.import_module("nncfx.tracing").trees
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'nncfx.tracing.trees'"):
        importlib.import_module("nncfx.tracing.trees")
