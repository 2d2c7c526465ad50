"""The page stands alone, says everything, and cannot be broken by a name."""

import dataclasses
import html.parser
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import report_evidence as given
from nncfx.errors import MissingExtraError
from nncfx.report import render_report, write_report

VOID = {"meta", "br"}


class Reader(html.parser.HTMLParser):
    """Collects tags, attributes and text, and holds every tag against its end."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    return reader


def test_every_tag_is_closed_and_every_chart_is_xml() -> None:
    page = render_report(given.EVIDENCE)
    read(page)
    charts = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(charts) > 3
    for chart in charts:
        ET.fromstring(chart)  # noqa: S314 (our own output)


def test_the_page_needs_nothing_but_itself() -> None:
    page = render_report(given.EVIDENCE)
    tags = read(page).tags
    assert {"script", "link", "img", "iframe"}.isdisjoint(tag for tag, _ in tags)
    assert not any("src" in attributes for _, attributes in tags)
    linked = [attributes["href"] for _, attributes in tags if "href" in attributes]
    assert linked
    assert all(one is not None and one.startswith(("#", "data:")) for one in linked)
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "@import" not in page


def test_the_page_says_what_a_person_wants_to_look_at() -> None:
    text = " ".join(" ".join(read(render_report(given.EVIDENCE)).texts).split())
    for words in (
        "2.00\N{MULTIPLICATION SIGN} faster",
        "15.0\N{MULTIPLICATION SIGN} smaller file",
        "inside the budget of \N{MINUS SIGN}2.00 points",
        "Study: throughput",
        "chosen level 0.500",
        "s_acc 0.510",
        "threshold 90.00 %",
        "Trial 3 failed: CompressionError: no filter is left",
        "Layer by layer",
        "conv1",
        "Thinned model against masked model",
        "File read back",
        "python demo.py --quick",
        "Z80",
        "Measured on a quiet machine.",
        "bracket of the crossing",
        "2-bit codebook",
        "outputs move by 0.25",
        "16 of 64 channels",
        "_, model = nncfx.load('out/model.nncfx', DenseModel())",
        "trials as CSV",
    ):
        assert words in text, words


def test_a_name_cannot_break_the_page() -> None:
    hostile = "</title><script>alert(1)</script>\"'&"

    def replace(value: object) -> object:
        """Put the hostile text in place of every free text, however deep."""
        if isinstance(value, str):
            return hostile
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            kept = {"stage", "state"}
            return dataclasses.replace(
                value,
                **{
                    f.name: replace(getattr(value, f.name))
                    for f in dataclasses.fields(value)
                    if f.name not in kept
                },
            )
        if isinstance(value, Mapping):
            return {hostile: hostile}
        return tuple(map(replace, value)) if isinstance(value, Sequence) else value

    page = render_report(replace(given.EVIDENCE))  # type: ignore[arg-type]  # replace keeps types
    reader = read(page)
    assert "script" not in {tag for tag, _ in reader.tags}
    assert any("alert(1)" in text for text in reader.texts)


def test_the_same_evidence_gives_the_same_page() -> None:
    assert render_report(given.EVIDENCE) == render_report(given.EVIDENCE)


def test_evidence_with_nothing_optional_is_a_page_too() -> None:
    bare = dataclasses.replace(
        given.EVIDENCE,
        machine={},
        versions={},
        studies=(),
        layers=(),
        max_thinning_error=None,
        files={},
        notes=(),
        file_accuracy=None,
        command="",
    )
    text = " ".join(read(render_report(bare)).texts)
    assert "Layer by layer" not in text
    assert "Notes" not in text


def test_a_report_is_written_into_a_new_folder(tmp_path: Path) -> None:
    path = write_report(tmp_path / "a" / "report.html", given.EVIDENCE)
    assert path.read_text(encoding="utf-8") == render_report(given.EVIDENCE)


def test_without_jinja_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'nncfx[report]'")):
        render_report(given.EVIDENCE)


def test_links_lead_to_what_is_on_the_page() -> None:
    tags = read(render_report(given.EVIDENCE)).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"] for _, a in tags if (a.get("href") or "").startswith("#")]
    assert {"#op0", "#study1-trial1"} <= set(links)
    assert {str(one)[1:] for one in links} <= set(ids)


def test_a_run_that_has_not_ended_is_a_page() -> None:
    page = render_report(
        dataclasses.replace(given.EVIDENCE, state="running, trial 3 of at most 8", layers=())
    )
    assert "Not ended: running, trial 3 of at most 8" in page
    assert "Not ended" not in render_report(given.EVIDENCE)


def test_a_long_name_keeps_its_unit_on_the_axis_and_is_whole_where_one_points() -> None:
    study = dataclasses.replace(
        given.STUDY,
        objective_name="energy_of_all_layers_in_the_whole_network",
        objective_unit="picojoule/inference",
    )
    page = render_report(dataclasses.replace(given.EVIDENCE, studies=(study,)))
    whole = "energy_of_all_layers_in_the_whole_network (picojoule/inference)"
    # 36 characters, of which the unit takes 22
    assert f"<title>{whole}</title>energy_of_all… (picojoule/inference)</text>" in page
