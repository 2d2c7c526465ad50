"""The example of a third-party package, installed as one, keeps the promises of nncfx's suites."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INSTALL = "-m pip --disable-pip-version-check install -q --no-index --no-deps --no-build-isolation"


@pytest.mark.slow
def test_its_own_tests_pass_where_it_is_installed(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    package, site = tmp_path / "plugin", tmp_path / "site"
    shutil.copytree(pytestconfig.rootpath / "examples" / "plugin", package)
    install = [sys.executable, *INSTALL.split(), "--target", str(site), str(package)]
    subprocess.run(install, check=True, timeout=300)
    path = os.pathsep.join([str(site), str(pytestconfig.rootpath)])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=package,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
