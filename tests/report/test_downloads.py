"""What the page gives away is the evidence itself."""

import base64
import csv
import dataclasses
import io

import report_evidence as given
from nncfx.evidence import Evidence
from nncfx.report.downloads import artefacts, downloads


def content(href: str) -> str:
    return base64.b64decode(href.partition("base64,")[2]).decode()


def test_the_downloads_read_back() -> None:
    found = {one.name: content(one.href) for one in downloads(given.EVIDENCE)}
    assert Evidence.from_json(found["evidence.json"]) == given.EVIDENCE
    trials = list(csv.DictReader(io.StringIO(found["trials.csv"])))
    assert [row["level"] for row in trials] == ["0.0", "0.5", "0.75", "0.9", "0.25"]
    assert trials[3]["error"] == "CompressionError: no filter is left"
    layers = list(csv.DictReader(io.StringIO(found["layers.csv"])))
    assert [row["module"] for row in layers] == ["conv1", "fc"]


def test_each_kind_of_file_has_its_line() -> None:
    files = {"a": "out/it's.onnx", "b": "notes.txt"}
    found = artefacts(dataclasses.replace(given.EVIDENCE, files=files))
    assert found[0].line == """session = onnxruntime.InferenceSession("out/it's.onnx")"""
    assert found[1].line == ""
