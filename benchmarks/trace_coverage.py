"""Wrap, trace and hook whole model zoos; print what fails, and why, as a Markdown table.

For each model: wrap it, put a no-op hook at every site, and check that the output is bitwise that
of the raw model, that every hook was called with a tensor of the traced shape, that every output
is reachable in the graph from every input that it depends on, and that tracing without computing
gives the graph that tracing with values gives; --traces checks this last alone, in less time, and
--compiled that the hooked model compiles without graph breaks where the raw one does. A sweep that
broke off goes on with --journal FILE, which takes up each row as it comes.

python benchmarks/trace_coverage.py transformers --slice 0:20
torchvision and timm import on CPU builds of torch only after shared/tools/torchvision_on_cpu.py;
give its folder with --shim.
"""

import argparse
import copy
import importlib
import itertools
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import networkx as nx
import torch
from torch import nn
from trace_rows import Row, entered, table, told
from trace_zoos import ZOOS, Subject
from typing_extensions import override

from nncfx.errors import GraphError, machine_fault
from nncfx.graph import NNCFGraph, input_address, output_address
from nncfx.network import unwrap, wrap
from nncfx.tracing import Insertion, PostSite, PreSite, Site, WeightSite, run
from nncfx.tracing.calls.inputs import as_call
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.record.tracer import Trace, trace_of_shapes, trace_with_wiring

Inputs: TypeAlias = Any


class Witness(nn.Identity):
    """A no-op hook that remembers the shapes it saw."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.expected = shape
        self.seen: list[tuple[int, ...]] = []

    @override
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self.seen.append(tuple(input.shape))
        return input


def check(subject: Subject, examine: Callable[[Row, nn.Module, Inputs], None]) -> Row:
    """Return what `subject` gives under `examine`."""
    row, start = Row(subject.name), time.perf_counter()
    try:
        torch.manual_seed(0)
        model, inputs = subject.make()
        model.eval()
        with torch.no_grad():
            examine(row, model, inputs)
    except Exception as error:
        if machine_fault(error) is not None:
            raise  # says nothing of the model
        row.faults.append(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    row.seconds = time.perf_counter() - start
    return row


def compare_traces(row: Row, model: nn.Module, inputs: Inputs) -> None:
    """Fill `row` with what differs between the trace of `model` with values and without."""
    torch.manual_seed(0)
    # some keep what they computed in their first forward
    quick = trace_of_shapes(copy.deepcopy(model), inputs)
    torch.manual_seed(0)
    full = trace_with_wiring(model, inputs)
    row.operations = len(full.graph.operations)
    row.faults += unlike(quick, full)


def compile_hooked(row: Row, model: nn.Module, inputs: Inputs) -> None:
    """Fill `row` with what is wrong with the compiled model, hooked at every site."""
    raw = outputs(model, inputs)
    torch._dynamo.reset()  # noqa: SLF001 (torch's documented name)
    try:
        compiled_outputs(model, inputs)
    except Exception:  # noqa: BLE001 (as `check` does: any refusal, and not ours)
        row.uncompiled = True
        return
    wrapped: Any = wrap(model, inputs)
    row.operations = len(wrapped.nncf.graph.operations)
    for site, _, function in sites(wrapped.nncf.graph):
        try:
            wrapped.nncf.register([Insertion(site, nn.Identity(), 0, "idle")])
        except GraphError:
            row.refused[function] += 1
        else:
            row.sites += 1
    wrapped.nncf.commit()
    torch._dynamo.reset()  # noqa: SLF001 (as above)
    if not same(raw, compiled_outputs(wrapped, inputs)):
        row.faults.append("another output when compiled")


def compiled_outputs(model: nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """Return copies of the output tensors of `model`, compiled without graph breaks."""
    args, kwargs = as_call(copied(inputs))
    torch.manual_seed(0)
    result = torch.compile(model, fullgraph=True, backend="eager")(*args, **kwargs)
    return [one.clone() for one in tensors_in(result)]


def unlike(quick: Trace, full: Trace) -> list[str]:
    """Return how a trace without values differs from the one with them."""
    if quick == full:
        return []
    if quick.graph == full.graph:
        return ["another wiring without values"]
    pairs = itertools.zip_longest(quick.graph.operations, full.graph.operations)
    first = next((pair for pair in pairs if pair[0] != pair[1]), "the edges")
    return [f"another graph without values, first {first}"]


def examine(row: Row, model: nn.Module, inputs: Inputs) -> None:
    """Fill `row` with what `model` gives on `inputs`."""
    compare_traces(row, model, inputs)
    raw = outputs(model, inputs)

    def expect_raw(when: str) -> None:
        if not same(raw, outputs(model, inputs)):
            row.faults.append(f"another output {when}")

    expect_raw("from one run to the next")
    wrapped: Any = wrap(model, inputs)
    graph: NNCFGraph = wrapped.nncf.graph
    row.operations = len(graph.operations)
    expect_raw("once wrapped")
    witnesses = witnessed(row, wrapped)
    expect_raw("with no-op hooks")
    row.faults += complaints(witnesses)
    unwrap(wrapped)
    expect_raw("once unwrapped")
    row.faults += disconnected(row, graph, model, inputs)


def witnessed(row: Row, wrapped: Any) -> dict[Site, Witness]:  # noqa: ANN401 (both its classes)
    """Return the hooks put at all sites of a wrapped model."""
    witnesses: dict[Site, Witness] = {}
    for site, shape, function in sites(wrapped.nncf.graph):
        hook = Witness(shape)
        try:
            wrapped.nncf.register([Insertion(site, hook, 0, "witness")])
        except GraphError:
            row.refused[function] += 1
        else:
            witnesses[site] = hook
    row.sites = len(witnesses)
    wrapped.nncf.commit()
    return witnesses


def complaints(witnesses: dict[Site, Witness]) -> list[str]:
    """Return what hooks that were called once have not seen."""
    silent = [str(site) for site, one in witnesses.items() if not one.seen]
    strange = [
        f"{site} saw {one.seen[0]} for {one.expected}"
        for site, one in witnesses.items()
        if one.seen and one.expected not in one.seen
    ]
    found = []
    if silent:
        found.append(f"{len(silent)} hooks never called: {', '.join(silent[:3])}")
    if strange:
        found.append(f"{len(strange)} hooks at another tensor: {', '.join(strange[:3])}")
    return found


def outputs(model: nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """Return copies of the output tensors, from one seed."""
    torch.manual_seed(0)
    return [one.clone() for one in tensors_in(run(model, copied(inputs)))]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Return whether two lists of tensors are equal bitwise; NaN equals NaN."""
    return len(one) == len(other) and all(
        a.shape == b.shape
        and a.dtype == b.dtype
        and bool(((a == b) | ((a != a) & (b != b))).all())  # noqa: PLR0124 (that is NaN)
        for a, b in zip(one, other, strict=True)
    )


def sites(graph: NNCFGraph) -> Iterator[tuple[Site, tuple[int, ...], str]]:
    """Yield every site of a graph, the shape there, and the function."""
    weights: set[Site] = set()
    for one in graph.operations:
        for port, info in enumerate(one.inputs):
            if info is None:
                continue
            if port in one.parameters:
                site = WeightSite.of(one.parameters[port])
                if site not in weights:
                    weights.add(site)
                    yield site, info.shape, one.function
            yield PreSite(one.address, port), info.shape, one.function
        for port, info in enumerate(one.outputs):
            yield PostSite(one.address, port), info.shape, one.function


def disconnected(row: Row, graph: NNCFGraph, model: nn.Module, inputs: Inputs) -> list[str]:
    """Return the outputs that do depend on an input and have no path from it."""
    drawn = graph.to_networkx()
    found = []
    expected = outputs(model, inputs)
    for number in range(len(graph.inputs)):
        reached = nx.descendants(drawn, input_address(number))
        missing = [i for i in range(len(graph.outputs)) if output_address(i) not in reached]
        if not missing:
            continue
        changed = outputs(model, perturbed(inputs, number))
        for index in missing:
            if index < len(changed) and same([expected[index]], [changed[index]]):
                row.independent += 1
            else:
                found.append(f"no path from input {number} to output {index}")
    return found


def copied(inputs: Inputs) -> Inputs:
    """Return `inputs` with copies of the tensors that it holds directly."""
    return changed(inputs, lambda tensor, _: tensor.clone())


def perturbed(inputs: Inputs, number: int) -> Inputs:
    """Return `inputs` with other values in its tensor `number`."""

    def other(tensor: torch.Tensor, index: int) -> torch.Tensor:
        if index != number:
            return tensor.clone()
        if tensor.is_floating_point():
            return tensor + torch.rand_like(tensor)
        if tensor.dtype == torch.bool:
            return ~tensor
        return tensor.roll(1, -1) if tensor.unique().numel() > 1 else 1 - tensor.clamp(0, 1)

    return changed(inputs, other)


def changed(inputs: Inputs, change: Callable[[torch.Tensor, int], torch.Tensor]) -> Inputs:
    """Return `inputs` with `change` applied to each tensor and its number."""
    args, kwargs = as_call(inputs)
    values, number = [], 0
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            values.append(change(value, number))
            number += 1
        else:
            values.append(value)
    return dict(zip(kwargs, values, strict=True)) if kwargs else tuple(values)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise TimeoutError after `seconds`."""

    def stop(_: int, __: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def swept(
    subjects: Sequence[Subject],
    examine: Callable[[Row, nn.Module, Inputs], None],
    seconds: int,
    journal: Path | None,
) -> list[Row]:
    """Return a row for each subject, from the journal where it has one."""
    known = told(journal) if journal else {}
    rows = []
    for number, subject in enumerate(subjects, 1):
        row = known.get(subject.name)
        if row is None:
            with limited(seconds):
                row = check(subject, examine)
            if journal:
                entered(row, journal)
            state = "; ".join(row.faults) or "ok"
            progress = f"[{number}/{len(subjects)}] {subject.name} {row.seconds:.1f} s: {state}"
            sys.stderr.write(f"{progress}\n")
        rows.append(row)
    return rows


def main() -> None:
    """Parse the command line, check, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("zoo", choices=sorted(ZOOS))
    parser.add_argument("--slice", default=":", help="of the models, as from:to")
    parser.add_argument("--only", nargs="*", help="names of models")
    parser.add_argument("--traces", action="store_true", help="compare traces only")
    parser.add_argument("--compiled", action="store_true", help="compile hooked models only")
    parser.add_argument("--seconds", type=int, default=120, help="limit for each model")
    parser.add_argument("--journal", type=Path, help="file of rows, to go on with")
    parser.add_argument("--shim", help="folder of torchvision_on_cpu.py")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if chosen.shim:
        sys.path.insert(0, chosen.shim)
        importlib.import_module("torchvision_on_cpu")
    first, _, last = chosen.slice.partition(":")
    subjects = ZOOS[chosen.zoo]()[int(first or 0) : int(last) if last else None]
    if chosen.only:
        subjects = [one for one in subjects if one.name in chosen.only]
    checked = compare_traces if chosen.traces else compile_hooked if chosen.compiled else examine
    rows = swept(subjects, checked, chosen.seconds, chosen.journal)
    sys.stdout.write(table(chosen.zoo, rows))


if __name__ == "__main__":
    main()
