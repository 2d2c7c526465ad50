"""The output of `nncfx compress`, `resume` and `status`."""

import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from nncfx.cli.console import column_table, output_console
from nncfx.evidence.formatting import candidate_words, number
from nncfx.report.format import bytes_text, count_text, prefix_text, ratio_text

if TYPE_CHECKING:
    from nncfx.tasks import Outcome, RunStatus, TaskPlan


def show_plan(plan: "TaskPlan") -> None:
    """Print the stages of a task, its hooks, and the predicted savings."""
    console = output_console()
    sys.stdout.writelines(f"- {stage}\n" for stage in plan.stages)
    if plan.hooks:
        table = column_table("Site", "Algorithm", "Hook", "Priority", numbers=("Priority",))
        for hook in plan.hooks:
            table.add_row(escape(hook.site), hook.algorithm, hook.hook, str(hook.priority))
        console.print(table)
    numbers = ("Parameters", "MACs", "Footprint", ".nncfx")
    table = column_table("Predicted", *numbers, numbers=numbers)
    for one in plan.predictions:
        if one.problem:
            table.add_row(f"{escape(one.at)}: {escape(one.problem)}")
        else:
            table.add_row(
                escape(one.at),
                count_text(one.parameters),
                prefix_text(one.macs),
                bytes_text(one.footprint_bytes),
                bytes_text(one.file_bytes),
            )
    console.print(table)


def show_status(found: "RunStatus") -> None:
    """Print the progress of a run, or why it failed."""
    lines = [f"{found.folder}: {found.state}"]
    if found.error:
        lines += _how_to_go_on(found)
    what = "trial" if found.kind == "search" else "step"
    if found.at_most:
        failed = f", {found.failed} failed" if found.failed else ""
        parts = found.at_most // found.stages
        stages = f", {parts} in each of {found.stages} stages" if found.stages > 1 else ""
        lines.append(f"{what} {found.done} of at most {found.at_most}{stages}{failed}")
    if found.dense_metric is not None:
        lines.append(f"dense: {found.dense_metric:.4f}; asked for: {found.threshold:.4f}")
    if found.kind == "search" and found.done:
        lines.append(_best(found))
    if found.unsure:
        lines.append(
            "trials within the budget, but not by two standard errors of their loss: "
            f"{found.unsure}; more validation examples would settle it"
        )
    if found.level is not None:
        lines.append(f"level {found.level:.4g}")
    if found.seconds_left is not None:
        lines.append(f"at most {_duration(found.seconds_left)} left at the pace so far")
    lines.append(f"last change: {found.last_change}")
    sys.stdout.write("\n".join(lines) + "\n")


def _how_to_go_on(found: "RunStatus") -> list[str]:
    folder, journal = (
        shlex.quote(str(one)) for one in (found.folder, found.folder / "journal.jsonl")
    )
    lines = [f"error: {found.error}", f"correct it and continue with: nncfx resume {folder}"]
    if found.kind == "search" and found.at_most:
        lines.append(
            "if that changes the search, its data or a function that it calls, earlier trials "
            f"do not count; first: rm {journal}"
        )
    return lines


def _best(found: "RunStatus") -> str:
    best = "best" if found.state == "ended" else "best so far"
    if found.best is None:
        stays = "; the dense model stays" if found.state == "ended" else ""
        return f"{best}: nothing is within the budget{stays}"
    chosen = candidate_words(found.best.candidate)
    unit = f" {found.unit}" if found.unit else ""
    return (
        f"{best}: {chosen}: {found.metric} {found.best.metric:.4f}, {found.objective} "
        f"{number(found.best.objective)}{unit}"
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _change(speed_up: float) -> str:
    if speed_up >= 1:
        return f"{speed_up:.2f} times as fast"
    return (
        f"SLOWER: {1 / speed_up:.2f} times the time. Floats are fast where whole channels go, "
        "integers where the processor multiplies bytes (docs/engines.md)"
    )


def show_outcome(outcome: "Outcome") -> None:
    """Print the outcome of a run: the model, then its exported file, then all files."""
    lines = []
    if outcome.evidence is not None:
        from nncfx.evidence.summary import summary

        lines.append(summary(outcome.evidence))
    facts = outcome.facts
    if "onnx_bytes" in facts:
        text = f"{'ONNX file':12} {bytes_text(facts['onnx_bytes'])}"
        if "dense_onnx_bytes" in facts:
            smaller = facts["dense_onnx_bytes"] / facts["onnx_bytes"]
            text += f", {ratio_text(smaller)} smaller than dense"
        lines.append(text)
    if "speed_up" in facts:
        times = facts["latency_ms"]
        is_clear = facts.get("is_clear", True)  # missing in results of earlier versions
        change = _change(facts["speed_up"]) if is_clear else "no clear change"
        dense, exported = times["dense"], times["exported"]
        lines.append(
            f"{'its time':12} {dense:.3g} ms -> {exported:.3g} ms in {facts['runtime']}"
            f"{_call(facts)}, turn by turn {change}"
        )
    lines += _judged_file(facts)
    if not facts.get("file_is_inside", True):
        lines.append("OUTSIDE the budget: the file, after its export")
    lines += [f"{name:12} {path}" for name, path in outcome.files.items()]
    sys.stdout.write("\n".join(lines) + "\n")


def _call(facts: Mapping[str, Any]) -> str:
    """Return the call of the latencies; "" in results of earlier versions without it."""
    if "latency_batch" not in facts:
        return ""
    from nncfx.runtimes import call_words

    return f" ({call_words(facts['latency_batch'], facts['latency_threads'])})"


def _judged_file(facts: Mapping[str, Any]) -> list[str]:
    """Return the metric of the run's file, and the sessions that reach it."""
    from nncfx.tasks.exported_file import session_note

    lines = []
    if "exported_metric" in facts:
        name, found = facts.get("metric", "metric"), facts["exported_metric"]
        dense = facts.get("dense_file_metric")
        beside = "" if dense is None else f", dense {dense:.4f}"
        data = facts.get("file_data")  # missing in results of earlier versions
        beside += "" if data is None else f", on all {data} data"
        lines.append(f"{'its metric':12} {name} {found:.4f}{beside}")
    if needed := session_note(facts):
        lines.append(f"{'NOTE':12} {needed}")
    return lines
