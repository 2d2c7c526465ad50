"""Packages import what stands in them at its first use."""

import subprocess
import sys

import pytest

from nncfx import algorithms, lc
from nncfx.lazy import names_of


@pytest.mark.parametrize("package", [algorithms, lc])
def test_all_public_names_are_found(package: object) -> None:
    assert [name for name in package.__all__ if not hasattr(package, name)] == []


def test_modules_are_imported_in_their_order_until_one_has_the_name() -> None:
    code = (
        "import sys\n"
        "from nncfx.algorithms import nm_sparsity\n"
        "nm_sparsity.NMSparsityConfig\n"
        "home = 'nncfx.algorithms.nm_sparsity'\n"
        "assert f'{home}.config' in sys.modules and f'{home}.builder' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_no_module_has_is_told() -> None:
    with pytest.raises(AttributeError, match=r"module 'nncfx\.lc' has no attribute 'Lc'"):
        names_of("nncfx.lc", "config", "builder")("Lc")


def test_the_front_door_imports_no_compiler() -> None:
    code = (
        "import sys, nncfx.compressor, nncfx.quantization, nncfx.thinning\n"
        "assert 'torch._dynamo' not in sys.modules, 'torch._dynamo is imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
