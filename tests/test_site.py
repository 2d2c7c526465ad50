"""Every public name has its place in the reference, and tutorials run as they stand."""

import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

import nncfx
from programs import run

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


@pytest.fixture(scope="module")
def site() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "docs" / "build_site.py")))


def test_every_public_name_has_a_page(site: SimpleNamespace) -> None:
    names, pages = site.public_names(), site.reference_pages()
    assert set(nncfx._PACKAGES) <= {name.split(".")[1] for name in names if "." in name}
    for package, public in names.items():
        page = pages[f"reference/{package}.md"]
        headings = re.findall(r"^(?:## |::: (?:[\w.]+\.)?)(\w+)$", page, re.MULTILINE)
        # a function is listed by the name of its definition, which may be another
        assert len(headings) == len(public), package
    assert "quantize" in pages["reference/nncfx.md"]


def test_every_key_of_configs_is_told(site: SimpleNamespace) -> None:
    page = site.config_page()
    assert "| `compression` |" in page
    assert "| `pruning_target` |" in page


def test_the_page_of_keys_begins_with_the_whole_config(site: SimpleNamespace) -> None:
    titles = re.findall(r"^## (\w+)$", site.config_page(), re.MULTILINE)
    assert titles[0] == "NNCFConfig"
    assert titles[1:] == sorted(titles[1:])
    assert "Config" not in titles


def test_commands_that_help_hides_are_not_listed(site: SimpleNamespace) -> None:
    page = site.commands_page()
    assert "## nncfx inspect\n" in page
    assert "inspect-file" not in page


def test_a_tutorial_is_a_notebook(site: SimpleNamespace) -> None:
    cells = site.cells_of("# %% [markdown]\n# # Title\n# text\n\n# %%\nx = 1\n\n\nprint(x)\n")
    assert cells == [("markdown", "# Title\ntext"), ("code", "x = 1\n\n\nprint(x)")]
    made = json.loads(site.notebook(cells))["cells"]
    assert [one["cell_type"] for one in made] == ["markdown", "code"]
    assert "".join(made[1]["source"]) == "x = 1\n\n\nprint(x)"
    page = site.tutorial_page("name", cells)
    assert page.startswith("# Title")
    assert "```python\nx = 1" in page


def test_code_on_a_page_is_left_as_it_stands(site: SimpleNamespace) -> None:
    page = SimpleNamespace(file=SimpleNamespace(src_uri="page.md"))
    code = "```python\nself[1](self[0](x))\n```\nand `rows[0](x)`"
    assert site.on_page_markdown(code, page) == code
    link = "[`setup`](../setup.cfg), see `rows[0]` and [saving](saving.md)"
    named = "`setup` (`setup.cfg`), see `rows[0]` and [saving](saving.md)"
    assert site.on_page_markdown(link, page) == named


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) == 8


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path) -> None:
    if "transformers" in path.read_text():
        pytest.importorskip("transformers")
    run(tmp_path, path)
