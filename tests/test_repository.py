"""The repository and its test run: nothing strays in, nothing is left behind, no zoo is needed."""

import ast
import pickle
import runpy
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

GIT = shutil.which("git") or "git"
LARGEST_FOLDER, LONGEST_MODULE, DEEPEST = 16, 400, 3
AT_THE_ROOT = {
    ".ci",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "LICENSE",
    "MANIFEST.in",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "changelog.d",
    "conftest.py",
    "constraints.txt",
    "docs",
    "examples",
    "mkdocs.yml",
    "nncfx",
    "pyproject.toml",
    "results",
    "setup.cfg",
    "tests",
}


@pytest.fixture
def run(pytester: pytest.Pytester, pytestconfig: pytest.Config) -> pytest.Pytester:
    """Return a clone that has this repository's conftest and no file."""
    shutil.copy(pytestconfig.rootpath / "conftest.py", pytester.path)
    subprocess.run([GIT, "init", "-q"], check=True)
    settings = "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']"
    pytester.makefile(".toml", pyproject=settings)
    (pytester.path / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n.hypothesis/\n")
    return pytester


def test_the_root_holds_what_is_named_here_only(pytestconfig: pytest.Config) -> None:
    if not (pytestconfig.rootpath / ".git").exists():
        pytest.skip("this is no clone")
    tracked = subprocess.run(
        [GIT, "ls-files"], cwd=pytestconfig.rootpath, capture_output=True, text=True, check=True
    )
    found = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert sorted(found - AT_THE_ROOT) == []


def test_folders_are_small_and_modules_short(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath / "nncfx"
    modules = [path for path in root.rglob("*.py") if path.name != "__init__.py"]
    folders = Counter(path.parent.relative_to(root).as_posix() for path in modules)
    assert {name: size for name, size in folders.items() if size > LARGEST_FOLDER} == {}
    lengths = {path: len(path.read_text().splitlines()) for path in root.rglob("*.py")}
    assert {path: length for path, length in lengths.items() if length > LONGEST_MODULE} == {}
    depths = {path: len(path.relative_to(root).parts) for path in modules}
    assert [path for path, depth in depths.items() if depth > DEEPEST] == []


def test_every_folder_of_modules_says_what_it_is(pytestconfig: pytest.Config) -> None:
    for path in (pytestconfig.rootpath / "nncfx").rglob("*.py"):
        package = path.with_name("__init__.py")
        assert ast.get_docstring(ast.parse(package.read_text())), package


def test_test_modules_stand_where_their_modules_do(pytestconfig: pytest.Config) -> None:
    tests = pytestconfig.rootpath / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")}
    gone = [one for one in folders if not (pytestconfig.rootpath / "nncfx" / one).is_dir()]
    assert sorted(gone) == [Path("faults")]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_run_that_leaves_a_file_behind_fails(run: pytest.Pytester, workers: list[str]) -> None:
    run.makepyfile("def test_it(): open('stray.nncfx', 'w').close()")
    result = run.runpytest_subprocess(*workers)
    result.stdout.fnmatch_lines(["*LEFT BEHIND stray.nncfx: no file before the run.*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    # what lay there before is nobody's fault
    assert run.runpytest_subprocess(*workers).ret == pytest.ExitCode.OK


@pytest.mark.parametrize("zoo", ["pytorchcv", "transformers"])
def test_without_a_zoo_its_tests_are_skipped_with_the_reason(
    run: pytest.Pytester, zoo: str
) -> None:
    run.makepyfile(
        gone=f"""
        import sys
        sys.modules["{zoo}"] = None
        """,
        test_above=f"""
        from {zoo}.models.resnet import resnet18
        def test_it(): pass
        """,
        test_inside=f"""
        import pytest
        @pytest.fixture
        def model():
            import {zoo}
        def test_with_a_fixture(model): pass
        def test_inside(): from {zoo} import anything
        def test_else(): import no_such_module
        """,
    )
    result = run.runpytest_subprocess("-p", "gone", "-rs")
    result.assert_outcomes(skipped=3, failed=1)
    result.stdout.fnmatch_lines([f"SKIPPED *test_above.py*: {zoo} is not installed"])


def test_cifar10_is_read_as_the_page_says_that_it_is_written(tmp_path: Path) -> None:
    examples = Path(__file__).parents[1] / "examples"
    page = (examples / "data.md").read_text()
    written: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], written)  # noqa: S102 (our own page)
    (tmp_path / "data").mkdir()
    generator = np.random.default_rng(0)
    batches = generator.integers(0, 256, (6, 4, 3072), np.uint8)
    names = ["test_batch", *(f"data_batch_{number}" for number in range(1, 6))]
    for name, images in zip(names, batches, strict=True):
        content = {b"data": images, b"labels": [0, 1, 2, 3]}
        (tmp_path / name).write_bytes(pickle.dumps(content))
    written["convert"](tmp_path, tmp_path)
    read = runpy.run_path(str(examples / "cifar10" / "data.py"))
    for part, expected in (("_train", batches[1:]), ("_test", batches[:1])):
        images, labels = read[part](tmp_path)
        np.testing.assert_array_equal(images, expected.reshape(-1, 3, 32, 32))
        assert labels.tolist() == [0, 1, 2, 3] * len(expected)
