"""The evidence that the tests of the report start from."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def given() -> ModuleType:
    """The constants of evidence.py; tests are not a package (importlib mode)."""
    path = Path(__file__).with_name("evidence.py")
    spec = importlib.util.spec_from_file_location("report_evidence", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
