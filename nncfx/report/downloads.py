"""Downloads of the page: the evidence as files, and the code that loads artefacts."""

import base64
import csv
import dataclasses
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from nncfx.evidence.evidence import Evidence

_LINES: Mapping[str, str] = {
    ".nncfx": "_, model = nncfx.load({path!r}, DenseModel())",
    ".safetensors": "_, model = nncfx.load({path!r}, DenseModel())",
    ".onnx": "session = onnxruntime.InferenceSession({path!r})",
    ".json": "evidence = nncfx.evidence.Evidence.read({path!r})",
    ".pt2": "model = torch.export.load({path!r}).module()",
}


@dataclass(frozen=True, kw_only=True)
class Download:
    """A file embedded in the page: its name, its meaning, and its content as a `data:` URL."""

    name: str
    words: str
    href: str


@dataclass(frozen=True, kw_only=True)
class Artefact:
    """A file that the run wrote, and the line of Python that loads it; "" if unknown."""

    words: str
    path: str
    line: str


def downloads(evidence: Evidence) -> tuple[Download, ...]:
    """Return the evidence as JSON, and its trials and layers as CSV, if there are any."""
    trials = [
        {"study": study.name, **dataclasses.asdict(sample)}
        for study in evidence.studies
        for sample in study.samples
    ]
    layers = [dataclasses.asdict(row) for row in evidence.layers]
    found = [
        _download("evidence.json", "all of it as JSON", "application/json", evidence.to_json())
    ]
    for name, rows in (("trials", trials), ("layers", layers)):
        if rows:
            found.append(_download(f"{name}.csv", f"{name} as CSV", "text/csv", _csv(rows)))
    return tuple(found)


def artefacts(evidence: Evidence) -> tuple[Artefact, ...]:
    """Return the files that the run wrote."""
    return tuple(
        Artefact(
            words=words, path=path, line=_LINES.get(PurePath(path).suffix, "").format(path=path)
        )
        for words, path in evidence.files.items()
    )


def _csv(rows: Iterable[Mapping[str, object]]) -> str:
    text = io.StringIO()
    rows = list(rows)
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _download(name: str, words: str, kind: str, text: str) -> Download:
    content = base64.b64encode(text.encode()).decode()
    return Download(name=name, words=words, href=f"data:{kind};charset=utf-8;base64,{content}")
