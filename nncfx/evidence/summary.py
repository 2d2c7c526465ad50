"""Formats the numbers of a run as lines of text."""

from nncfx.evidence.evidence import Evidence
from nncfx.evidence.formatting import number
from nncfx.runtimes import call_words

_FACTS = ("throughput", "latency", "footprint", "file size", "parameters", "MACs")
"""Objectives covered by other lines."""


def summary(found: Evidence) -> str:
    """Return a comparison of dense and compressed, one line per measured quantity.

    If nothing was chosen, or the loss exceeds the budget, this is stated first.
    """
    dense, now, judgement = found.dense, found.compressed, found.judgement
    study = found.studies[-1] if found.studies else None
    lines = []
    if study and study.why_unchanged:
        lines.append(f"UNCHANGED: {study.why_unchanged}")
    if judgement is not None and not judgement.is_inside:
        lines.append(f"OUTSIDE the budget: {judgement.words(found.metric)}")
    lines.append(f"{found.metric:12} {dense.accuracy:10.4f} -> {now.accuracy:10.4f}")
    if judgement is not None and judgement.is_inside:
        lines.append(f"{'':12} {judgement.words(found.metric)}")
    lines += [
        _line("parameters", dense.parameters, now.parameters),
        _line("MACs", dense.macs, now.macs),
        _line("footprint B", dense.footprint_bytes, now.footprint_bytes),
    ]
    if dense.file_bytes and now.file_bytes:
        lines.append(
            _line("file B", dense.file_bytes, now.file_bytes) + "  (safetensors -> .nncfx)"
        )
    if dense.packed_bytes and now.packed_bytes:
        lines.append(
            _line("same format", dense.packed_bytes, now.packed_bytes) + "  (both .nncfx)"
        )
    if dense.latency_ms and now.latency_ms:
        overlap = _overlap(dense.latency_interval_ms, now.latency_interval_ms)
        call = f"{call_words(found.batch, found.threads)}, {found.runtime}"
        lines.append(
            _line("latency ms", dense.latency_ms, now.latency_ms)
            + f"  ({call}{'; intervals overlap: no clear change' if overlap else ''})"
        )
    if study and study.objective_name not in _FACTS and study.chosen_objective is not None:
        line = _line(study.objective_name, study.dense_objective, study.chosen_objective)
        lines.append(f"{line}  ({study.objective_unit})" if study.objective_unit else line)
    return "\n".join(lines)


def _overlap(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]


def _line(name: str, before: float | None, after: float) -> str:
    if before is None:
        return f"{name:12} {'':10} -> {number(after):>10}"
    change = f"{before / after:8.2f}x" if after else "     gone" if before else ""
    return f"{name:12} {number(before):>10} -> {number(after):>10}  {change}".rstrip()
