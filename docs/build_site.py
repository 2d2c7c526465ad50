"""What MkDocs asks while it builds the site: pages that are made from the code, and llms.txt.

Made are a page of the reference for each public package, the reference of configs (from their
schema) and of commands, a page and a notebook for each tutorial, and `llms.txt`.
"""

import ast
import importlib
import inspect
import itertools
import json
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import nncfx

DOCS: Final = Path(__file__).parent
TUTORIALS: Final = DOCS / "tutorials"
SHOWN: Final = 300
"""So many characters of a constant are shown."""

MARK: Final = "# %%"
"""Begins a cell of a tutorial, as Jupytext and editors have it; `[markdown]` behind it is text."""

LINK: Final = re.compile(
    r"^ *```.*?^ *```$|`[^`\n]+`|(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", re.MULTILINE | re.DOTALL
)
"""A link, or code, in which nothing is one."""


def on_config(config: Any) -> Any:
    """Put the pages of the reference, and those that the nav does not name, into the nav."""
    reference = next(one["Reference"] for one in config["nav"] if "Reference" in one)
    reference.append({"Python": sorted(reference_pages())})
    named = set(_named(config["nav"]))
    there = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    left = sorted(there - named)
    decisions = [one for one in left if one.startswith("decisions/")]
    config["nav"].append({"Decisions": decisions})
    if more := [one for one in left if one not in decisions]:
        config["nav"].append({"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add what is made from the code."""
    from mkdocs.structure.files import File

    made = {
        **reference_pages(),
        "reference/config.md": config_page(),
        "reference/commands.md": commands_page(),
    }
    for path in sorted(TUTORIALS.glob("*.py")):
        cells = cells_of(path.read_text(encoding="utf-8"))
        made[f"tutorials/{path.stem}.md"] = tutorial_page(path.stem, cells)
        made[f"tutorials/{path.stem}.ipynb"] = notebook(cells)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name files of the repository that are no page, instead of a link to them."""
    here = (DOCS / page.file.src_uri).parent

    def fixed(found: re.Match[str]) -> str:
        text, address = found.groups()
        path = (here / address.partition("#")[0]).resolve()
        if address.startswith(("http", "#", "mailto")) or path.suffix in {".md", ".svg", ".png"}:
            inside = path.is_relative_to(DOCS)
            return found[0] if inside or address.startswith(("http", "#")) else f"{text}"
        if path.is_dir() and path.is_relative_to(DOCS):
            first = min(path.glob("*.md"))
            return f"[{text}]({address.rstrip('/')}/{first.name})"
        return found[0] if path.suffix == ".ipynb" else f"{text} (`{_in_repository(path)}`)"

    return LINK.sub(lambda found: found[0] if found[1] is None else fixed(found), markdown)


def on_post_build(config: Any) -> None:
    """Write `llms.txt`: what there is to read, a line for each page."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}", ""]
    for title, pages in _sections(config["nav"]):
        lines += [f"## {title}", ""]
        for name in pages:
            path = Path(config["site_dir"]) / Path(name).with_suffix(".html")
            html = path.read_text(encoding="utf-8") if path.exists() else ""
            found = re.search(r"<title>(.*?)(?: - nncfx)?</title>", html)
            lines.append(f"- [{found[1] if found else name}]({Path(name).with_suffix('.html')})")
        lines.append("")
    (Path(config["site_dir"]) / "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def public_names() -> dict[str, list[str]]:
    """Return the public names of each package that has any, by its dotted name."""
    found = {"nncfx": list(nncfx.__all__)}
    for one in pkgutil.walk_packages(nncfx.__path__, "nncfx."):
        if one.ispkg and (names := getattr(importlib.import_module(one.name), "__all__", [])):
            found[one.name] = sorted(names, key=str.lower)
    return found | {name: _names_in(name) for name in modules()}


def modules() -> list[str]:
    """Return the public modules that are no packages; some need a library to be imported."""
    folder = DOCS.parent / "nncfx" / "integrations"
    found = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    return ["nncfx.errors", *(f"nncfx.integrations.{name}" for name in found)]


def _names_in(module: str) -> list[str]:
    path = DOCS.parent.joinpath(*module.split(".")).with_suffix(".py")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def reference_pages() -> dict[str, str]:
    """Return the pages of the reference: one for each public package, every name a heading."""
    return {f"reference/{name}.md": _page(name, names) for name, names in public_names().items()}


def _page(package: str, names: list[str]) -> str:
    if package in modules():
        return "\n\n".join([f"# {package}", *(f"::: {package}.{name}" for name in names)])
    module = importlib.import_module(package)
    lines = [f"# {package}", "", inspect.getdoc(module) or "", ""]
    for name in names:
        value = getattr(module, name)
        lines += [_entry(package, name, value), ""]
    return "\n".join(lines)


def _entry(package: str, name: str, value: object) -> str:
    if isinstance(value, ModuleType):
        is_page = hasattr(value, "__path__")
        told = f"[{value.__name__}]({value.__name__}.md)" if is_page else f"`{value.__name__}`"
        return f"## {name}\n\n{told}: {inspect.getdoc(value)}"
    home = getattr(value, "__module__", None)
    if (inspect.isclass(value) or inspect.isfunction(value)) and str(home).startswith("nncfx"):
        return f"::: {home}.{value.__qualname__}"
    told = _documented(package, name)
    shown = repr(value)
    shown = f"{shown[:SHOWN]} ..." if len(shown) > SHOWN else shown
    shown = re.sub(r" at 0x[0-9a-f]+", "", shown)
    return f"## {name}\n\n{told}\n\n```text\n{shown}\n```"


def _documented(package: str, name: str) -> str:
    """Return the text behind an assignment, where it is imported from."""
    module = importlib.import_module(package)
    source = Path(inspect.getfile(module)).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if (alias.asname or alias.name) == name and node.module.startswith("nncfx"):
                    return _docstring_of(node.module, alias.name)
    return _docstring_of(package, name)


def _docstring_of(module: str, name: str) -> str:
    source = Path(inspect.getfile(importlib.import_module(module)))
    body = ast.parse(source.read_text(encoding="utf-8")).body
    for node, behind in itertools.pairwise(body):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        is_text = isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant)
        if is_text and any(getattr(one, "id", None) == name for one in targets):
            return inspect.cleandoc(str(behind.value.value))
    return ""


def config_page() -> str:
    """Return the reference of configs: the keys of each object of the schema."""
    objects = nncfx.NNCFConfig.schema()["$defs"]
    lines = [
        "# Keys of configs",
        "",
        "Made from the schema. What the keys do together: [configs](../config.md).",
        "",
    ]
    first = nncfx.NNCFConfig.__name__
    for name in sorted(objects, key=lambda one: (one != first, one)):
        lines += _objects(name, objects[name])
    return "\n".join(lines)


def _objects(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "", schema.get("description", ""), "")
    if properties := schema.get("properties"):
        yield from ("| key | is | default | means |", "|---|---|---|---|")
        for key, one in properties.items():
            default = json.dumps(one["default"]) if "default" in one else ""
            cells = (
                f"`{key}`",
                _kind(one),
                f"`{default}`" if default else "",
                one.get("description", ""),
            )
            yield (
                "| "
                + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
                + " |"
            )
        yield ""


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            return " or ".join(dict.fromkeys(_kind(one) for one in schema[word]))
    kind = schema.get("type", "")
    if kind == "array" and "items" in schema:
        return f"list of {_kind(schema['items'])}"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    told = ", ".join(f"{sign} {schema[one]}" for one, sign in limits.items() if one in schema)
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    return f"{kind} {told}".strip()


def commands_page() -> str:
    """Return the reference of the command line: each command with its arguments and options."""
    import typer.main

    from nncfx.cli.commands import application

    lines = [
        "# Commands",
        "",
        "What each takes; how they work together: [command line](../command_line.md).",
        "",
    ]
    lines += _command("nncfx", typer.main.get_command(application))
    return "\n".join(lines)


def _command(name: str, command: Any) -> Iterator[str]:
    yield from (f"## {name}", "", inspect.cleandoc(command.help or "").partition("\f")[0], "")
    parameters = [one for one in command.params if not getattr(one, "hidden", False)]
    if parameters:
        yield from ("| argument | means |", "|---|---|")
        for one in parameters:
            spelt = ", ".join(one.opts) if one.param_type_name == "option" else one.name.upper()
            told = (getattr(one, "help", None) or "").replace("\n", " ").replace("|", "\\|")
            yield f"| `{spelt}` | {told} |"
        yield ""
    for child, one in sorted(getattr(command, "commands", {}).items()):
        if not one.hidden:
            yield from _command(f"{name} {child}", one)


def cells_of(source: str) -> list[tuple[str, str]]:
    """Return the cells of a tutorial: "markdown" or "code", and the text."""
    cells = []
    for part in re.split(rf"^{MARK}", source, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            lines = [re.sub(r"^# ?", "", line) for line in body.splitlines()]
            cells.append(("markdown", "\n".join(lines).strip()))
        else:
            cells.append(("code", body.strip()))
    return cells


def tutorial_page(name: str, cells: list[tuple[str, str]]) -> str:
    """Return a tutorial as Markdown."""
    parts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells]
    told = f"[Take it along as a notebook]({name}.ipynb); it runs as it is."
    return "\n\n".join([parts[0], told, *parts[1:]])


def notebook(cells: list[tuple[str, str]]) -> str:
    """Return a tutorial as a Jupyter notebook."""
    made = [
        {
            "id": f"cell-{number}",
            "cell_type": kind,
            "metadata": {},
            "source": text.splitlines(keepends=True),
            **({"outputs": [], "execution_count": None} if kind == "code" else {}),
        }
        for number, (kind, text) in enumerate(cells)
    ]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps(
        {"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}, indent=1
    )


def _in_repository(path: Path) -> str:
    root = DOCS.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def _named(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
        return
    for one in nav.values() if isinstance(nav, dict) else nav:
        yield from _named(one)


def _sections(nav: Any) -> Iterator[tuple[str, list[str]]]:
    yield "Start", [name for one in nav for name in _named(one) if not _is_section(one)]
    for one in nav:
        if _is_section(one):
            for title, pages in one.items():
                yield title, list(_named(pages))


def _is_section(one: Any) -> bool:
    return isinstance(one, dict) and not isinstance(next(iter(one.values())), str)
