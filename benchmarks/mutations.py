"""Break the core by small mutations, one at a time, and count those that no test notices.

Each mutation changes one operator, number, condition or statement of a module. It is never written
to disk: a forked child swaps the code of the changed function (or, for what stands outside of
functions, imports the changed source in place of the file) and runs the tests named in `SUBJECTS`
(with `--thorough` those of the whole folder as well). A mutation that all of them pass has
survived: a test is missing, or the mutation changes nothing (a constant of a heuristic, a path
that is only faster).

    python benchmarks/mutations.py --count 500 --journal out/mutations.jsonl
    python benchmarks/mutations.py --only nncfx/quantization/grid/fake_quantize.py --count 40

What the journal holds is not run again, so that a killed run goes on; survivors are run again with
`--survivors`, after tests were written for them.
"""

import argparse
import ast
import contextlib
import copy
import dataclasses
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
SUBJECTS = {
    "nncfx/tracing/hooks/chain.py": [
        "tests/tracing/hooks/test_weight_hooks.py",
        "tests/tracing/hooks/test_activation_hooks.py",
        "tests/tracing/hooks/test_chain.py",
    ],
    "nncfx/tracing/hooks/weight_hooks.py": ["tests/tracing/hooks/test_weight_hooks.py",
        "tests/tracing/hooks/test_hooked_reads.py"],
    "nncfx/channels/ids.py": ["tests/channels/test_ids.py",
        "tests/channels/rules/test_movement.py"],
    "nncfx/channels/grouping.py": ["tests/channels/test_grouping.py",
        "tests/channels/test_trace.py"],
    "nncfx/channels/constraints.py": ["tests/channels/test_constraints.py",
        "tests/channels/test_trace.py"],
    "nncfx/channels/rules/movement.py": ["tests/channels/rules/test_movement.py",
        "tests/channels/rules/test_extents.py",
        "tests/channels/test_trace.py",
        "tests/thinning/test_widths_in_code.py"],
    "nncfx/channels/rules/contraction.py": ["tests/channels/rules/test_contraction.py",
        "tests/channels/test_trace.py",
        "tests/thinning/test_widths_in_code.py",
        "tests/channels/rules/test_extents.py"],
    "nncfx/graph/channels.py": ["tests/graph/test_channels.py",
        "tests/graph/test_selection.py",
        "tests/graph/test_channel_entries.py"],
    "nncfx/graph/union_find.py": ["tests/graph/test_union_find.py"],
    "nncfx/thinning/surgery.py": ["tests/thinning/test_surgery.py", "tests/thinning/test_thin.py",
        "tests/thinning/test_narrow_attention.py"],
    "nncfx/thinning/removal.py": ["tests/thinning/test_thin.py",
        "tests/thinning/test_widths_in_code.py",
        "tests/thinning/forward/test_graph_form.py"],
    "nncfx/schemes/masks/exact_masks.py": ["tests/schemes/masks/test_exact_masks.py",
        "tests/schemes/test_pruning.py"],
    "nncfx/controllers/base/schedulers.py": ["tests/controllers/base/test_schedulers.py"],
    "nncfx/controllers/base/schedules.py": ["tests/controllers/base/test_schedules.py",
        "tests/algorithms/test_magnitude_sparsity.py"],
    "nncfx/quantization/grid/fake_quantize.py": ["tests/quantization/grid/test_fake_quantize.py"],
    "nncfx/export/qdq.py": ["tests/export/test_qdq.py",
        "tests/export/test_concatenation.py",
        "tests/export/passes/test_recurrent_weights.py",
        "tests/export/passes/test_fusion_barriers.py",
        "tests/export/passes/test_space_to_depth_stem.py",
        "tests/export/passes/test_embeddings.py",
        "tests/export/passes/test_subsampled_pixels.py"],
    "nncfx/search/one_level/level_set.py": ["tests/search/one_level/test_level_set.py"],
    "nncfx/search/one_level/bracket.py": ["tests/search/one_level/test_bracket.py"],
    "nncfx/search/journal.py": ["tests/search/one_level/test_study.py"],
    "nncfx/storage/codecs/ans.py": ["tests/storage/codecs/test_ans.py"],
    "nncfx/storage/codecs/huffman.py": ["tests/storage/codecs/test_huffman.py"],
    "nncfx/storage/codecs/prefix_code.py": ["tests/storage/codecs/test_prefix_code.py",
        "tests/storage/codecs/test_huffman.py"],
    "nncfx/storage/codecs/codebook.py": ["tests/storage/codecs/test_codebook.py"],
    "nncfx/storage/codecs/sparse_index.py": ["tests/storage/codecs/test_sparse_index.py"],
    "nncfx/storage/codecs/symbol_stream.py": ["tests/storage/codecs/test_symbol_stream.py"],
    "nncfx/storage/codecs/tensor_codecs.py": ["tests/storage/codecs/test_tensor_codecs.py",
        "tests/storage/formats/test_tensor_file.py"],
    "nncfx/lc/lc.py": ["tests/lc/test_lc.py"],
    "nncfx/lc/lagrangian.py": ["tests/lc/test_lagrangian.py"],
    "nncfx/lc/projection.py": ["tests/lc/test_projection.py"],
    "nncfx/lc/nesterov.py": ["tests/lc/test_nesterov.py"],
}  # fmt: skip
PRELOADED = ("torch", "numpy", "networkx", "onnx", "onnxscript", "onnxruntime", "gpytorch",
             "botorch", "hypothesis", "rich", "jsonschema", "safetensors")  # fmt: skip
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And, ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
DROPPED = frozenset({"abs", "clamp", "clamp_", "flip", "neg", "round", "sort", "sorted", "clip"})
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any", "argmin": "argmax",
         "argmax": "argmin", "amin": "amax", "amax": "amin", "floor": "ceil",
         "ceil": "floor", "minimum": "maximum", "maximum": "minimum"}  # fmt: skip
_PORTIONS = "portions in which a whole is done: any size gives the same"
_TIME = "saves time only"
_ANY_SIZE = "numpy takes any negative size for the one that is left"
EQUIVALENT: dict[str, dict[str, str]] = {
    "nncfx/quantization/grid/fake_quantize.py": {
        r"if zero_point\.dtype != torch\.int32:.*if True": "what is int32 stays what it is",
        r"if ctx\.needs_input_grad\[2\]:.*if True": _TIME,
        r"if like\.numel.*#.*(  ->  torch\.compiler|if False)": _TIME,
    },
    "nncfx/search/journal.py": {r"buffering=0": "lines go to the descriptor"},
    "nncfx/tracing/hooks/weight_hooks.py": {
        r"return False  # False": "torch then makes the list again, which is the same"
    },
    "nncfx/channels/ids.py": {
        r"if ids\[start\] != ids\[second\]:.*if False": _TIME,
        r"if new > 0.*>=": "a shape that is the same",
    },
    "nncfx/channels/constraints.py": {r"if known is not ids:.*if True": _TIME},
    "nncfx/graph/union_find.py": {
        r"if roots is not parents:": _TIME,
        r"max\(needed \+ 1, 2 \* len.*(1  ->  2|2  ->  3|2 / len)": _TIME,
    },
    "nncfx/channels/grouping.py": {
        r"if id\(ids\) not in found:.*if True": _TIME,
        r"enumerate\(reasons\.values\(\), 1\).*1  ->  2": "any numbers but that of no reason",
        r"(often\.max\(\) \+ 1\)|labels\.max\(\) \+ 1 \+).*1  ->  2": "any larger number does",
        r"labels\.max\(initial=0\).*0  ->  1": "a label that nothing has",
        r"np\.full\(notes\.count \+ 1.*1  ->  2": "an entry that nothing points to",
        r"if np\.count_nonzero\(often != often\[0\]\).*(==|if True)": _TIME,
    },
    "nncfx/controllers/base/schedules.py": {
        r"low, high = high, 2 \* high.*2  ->  3|while _risen\(high, at\) < share": _TIME,
        r"middle := .*2  ->  3|if _risen\(middle.*<=": "bisection finds the same root",
    },
    "nncfx/schemes/masks/exact_masks.py": {
        r"isnan\(flat\[name\]\.max": "either end of entries with a NaN is NaN",
        r"if count < least\[index\].*<=": "what has just its least gets the same again",
        r"if key not in factors:.*if True": _TIME,
    },
    "nncfx/thinning/surgery.py": {
        r"for \(name, axis\), removed in|if key not in kept:.*if True": _TIME
    },
    "nncfx/storage/codecs/prefix_code.py": {
        r'"100" if length > last': "lengths that differ",
        r"reshape\(-1, 2\).*1  ->  2": _ANY_SIZE,
    },
    "nncfx/search/one_level/level_set.py": {
        r"^_[A-Z_]+ = ": "only shifts a probe; benchmarks/search_efficiency.py weighs them",
        r"or 1\.0.*1\.0  ->  2\.001": "all drops are zero in any unit",
        r"# (?=.*(to_|_FAR|_STEEP|_FINEST))(?!.* (and|or) ).* ([<>])=? .*  ->  .* \3": (
            "numbers that are computed are never just equal"
        ),
        r"first <= last  ->  first < last": "where both ends are one, it is the middle",
        r"^    grid = .*#.*(1  ->  2|_GRID - 1|i - 1)": "a grid that is as fine",
        r"max\(slope, 1e-9\).*1e-09  ->  ": "any slope that is not zero",
    },
    "nncfx/storage/codecs/huffman.py": {
        r"^_(CHUNK|LANES|ROWS|WALK_BYTES|PAD) = ": _PORTIONS,
        r"size = min\(_WALK_BYTES.*(7  ->  8|\+ first)": "more of the padding is looked at",
        r"first \+ size \+ 3.*3  ->  4": "more of the padding is looked at",
        r"reshape\(-1\)  # 1  ->  2": _ANY_SIZE,
    },
    "nncfx/storage/codecs/ans.py": {r"^_BATCH = ": _PORTIONS},
    "nncfx/storage/codecs/tensor_codecs.py": {
        r"^_CHUNK = ": _PORTIONS,
        r"^RUN_LIMITS = ": "one beside does as well; tests of refusals state the last",
        r"^_POPULATION = .*256  ->  257": "a table beyond the last byte",
        r"limit: int = 0": "the limit of what is no run",
        r"narrow = ": "a tensor of 16 GiB would tell",
        r"if count == words\.size:.*if False": _TIME,
        r"if sparse\.kept\.size < words\.size:": "an index of no zeros is never smaller",
        r"if kept >= words\.size // 4:": _TIME,
        r"np\.zeros\(limit \+ 1.*1  ->  2": "a symbol that does not occur",
        r"if not runs\[limit\]:.*if False|^ +break": _TIME,
        r"if zeros\.size and": "two ways to count the same",
        r"widened\(np\.zeros\(0": "only the type of the array is read",
    },
    "nncfx/storage/codecs/symbol_stream.py": {r"reshape\(-1, 2\)  # 1  ->  2": _ANY_SIZE},
    "nncfx/storage/codecs/codebook.py": {
        r"^_CHUNK = ": _PORTIONS,
        r"unknown\.size // 8192": "a sample of any size is enough",
    },
}
"""What no test can notice, and why: patterns of `line  # old  ->  new`."""
KILLED, SURVIVED, TIMED_OUT, LEFT_OUT = "killed", "survived", "timed out", "left out"
NOT_SWAPPED = "not swapped"  # its tests did not run
_UNSWAPPED = 77


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutation:
    """One change of one module: the n-th that can be made there."""

    module: str
    line: int
    function: str | None
    change: str
    source: str

    @property
    def key(self) -> str:
        """What names it as long as its module is the same."""
        return hashlib.sha256(f"{self.module}\n{self.source}".encode()).hexdigest()[:16]


def sites(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Yield each node below `tree` that can be changed with what takes its place."""
    for field, value in ast.iter_fields(tree):
        if field in {"annotation", "returns", "decorator_list"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            # imports decide nothing, and the wording of errors is no behaviour to count
            if isinstance(child, ast.AST) and not _is_no_behaviour(child):
                for change in CHANGES:
                    yield from ((child, new) for new in change(child))
                yield from sites(child)


def _comparisons(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for n, operator in enumerate(node.ops):
            new = copy.deepcopy(node)
            new.ops[n] = SWAPS[type(operator)]()  # type: ignore[call-overload]
            yield new


def _operators(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in SWAPS:
        new = copy.deepcopy(node)
        new.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        if not any(isinstance(getattr(one, "value", 0), str) for one in ast.walk(node)):
            yield new
    elif isinstance(node, ast.Break | ast.Continue):
        yield SWAPS[type(node)]()
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


def _constants(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Constant(value=bool() as value):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value=value + 1)
        case ast.Constant(value=float() as value):
            yield ast.Constant(value=2 * value + 1e-3)


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name]), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in CALLS:
            yield ast.Call(ast.Attribute(owner, CALLS[name]), node.args, node.keywords)
        case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in DROPPED:
            yield node.args[0] if _is_module(owner) else owner
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in DROPPED:
            yield first


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING":
        for always in (False, True):
            new = copy.copy(node)
            new.test = ast.Constant(value=always)
            yield new
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield ast.Pass()


NO_BEHAVIOUR = (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)


def _is_no_behaviour(node: ast.AST) -> bool:
    # the `strict` of a zip states, as an assert does, what holds anyway
    return isinstance(node, NO_BEHAVIOUR) or getattr(node, "arg", None) == "strict"


CHANGES = (_comparisons, _operators, _constants, _calls, _statements)


def _is_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in {"torch", "np", "math"}


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.old:
            return ast.copy_location(self.new, node)
        return self.generic_visit(node)


def mutation(module: str, n: int) -> Mutation:
    """Return the n-th mutation of the file `module`."""
    tree = ast.parse((ROOT / module).read_text())
    node, new = list(sites(tree))[n]
    old, words = (ast.unparse(one).splitlines()[0] for one in (node, new))
    function = _function(tree, node)
    line = node.lineno  # type: ignore[attr-defined]
    source = ast.unparse(ast.fix_missing_locations(_Replace(node, new).visit(tree)))
    return Mutation(
        module=module, line=line, function=function, change=f"{old}  ->  {words}", source=source
    )


def _function(tree: ast.AST, wanted: ast.AST) -> str | None:
    """Return the qualified name of the outermost function whose body holds `wanted`."""
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.FunctionDef(name=name, body=body):
                if any(node is wanted for one in body for node in ast.walk(one)):
                    return name
            case ast.ClassDef(name=name):
                inside = _function(child, wanted)
                if inside is not None:
                    return f"{name}.{inside}"
            case _:
                pass
    return None


def _swap(mutation: Mutation) -> bool:
    """Give the mutated function its changed code in place; return whether it was found."""
    module = sys.modules[_name(mutation.module)]
    owner: Any = module
    code = compile(mutation.source, str(ROOT / mutation.module), "exec")
    for part in (mutation.function or "").split("."):
        owner = vars(owner).get(part) if owner is not None else None
        named = [one for one in code.co_consts if getattr(one, "co_name", None) == part]
        if len(named) != 1:
            return False
        code = named[0]
    owner = getattr(owner, "fget", None) or getattr(owner, "__func__", None) or owner
    owner = getattr(owner, "func", owner)
    while hasattr(owner, "__wrapped__"):
        owner = owner.__wrapped__
    if not isinstance(owner, FunctionType) or owner.__code__.co_freevars != code.co_freevars:
        return False
    owner.__code__ = code
    return True


def _name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import one module from a changed source."""

    def __init__(self, mutation: Mutation) -> None:
        self.name = _name(mutation.module)
        self.path = str(ROOT / mutation.module)
        self.source = mutation.source

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        del path, target
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def exec_module(self, module: object) -> None:
        exec(compile(self.source, self.path, "exec"), module.__dict__)  # noqa: S102 (our own source)


def _import_mutated(mutation: Mutation) -> None:
    """Import the changed source, before pytest looks for the file; end the process if it fails."""
    sys.meta_path.insert(0, _Mutated(mutation))
    try:
        importlib.import_module(_name(mutation.module))
    except BaseException:  # noqa: BLE001 (a broken module may raise anything)
        os._exit(1)


def outcome(mutation: Mutation, tests: list[str], seconds: float) -> tuple[str, float]:
    """Return what the tests say of a mutation, in a process of its own, and its CPU seconds."""
    child = os.fork()
    if child == 0:
        os.setsid()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        # what loops for ever is ended by the seconds it has used, however busy the machine is
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        if not mutation.line:
            pass
        elif _name(mutation.module) not in sys.modules:
            _import_mutated(mutation)
        elif not _swap(mutation):
            os._exit(_UNSWAPPED)
        os._exit(_run(tests))
    _, status, used = os.wait4(child, 0)
    with contextlib.suppress(ProcessLookupError):  # what it may have left running
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    names = {0: SURVIVED, _UNSWAPPED: NOT_SWAPPED, -signal.SIGKILL: TIMED_OUT}
    return names.get(code, KILLED), used.ru_utime + used.ru_stime


def _run(tests: list[str]) -> int:
    # a failure is not made smaller, and the same examples are drawn each time
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutations", phases=phases, derandomize=True, database=None, deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-W", "ignore",
               "--hypothesis-profile", "mutations"]  # fmt: skip
    try:
        return int(pytest.main([*options, *tests]))
    except BaseException:  # noqa: BLE001 (a broken module may raise anything on import)
        return 1


def _tests(module: str, *, thorough: bool) -> list[list[str]]:
    """Return the stages of tests of a module: its own and its examples, then its folder's."""
    own = [one for one in [module, *SUBJECTS[module]] if (ROOT / one).exists()]
    folder = f"tests/{module.split('/')[1]}"
    return [own, [folder]] if thorough else [own]


def chosen(count: int, seed: int, only: list[str]) -> list[Mutation]:
    """Return `count` mutations, drawn evenly over all that can be made of the subjects."""
    everything = [
        (module, n)
        for module in only or SUBJECTS
        for n in range(len(list(sites(ast.parse((ROOT / module).read_text())))))
    ]
    drawn = random.Random(seed).sample(everything, min(count, len(everything)))
    sample = [mutation(*one) for one in drawn]
    # what stands outside of functions comes first, while nncfx is not imported
    return sorted(sample, key=lambda one: one.function is not None)


def main() -> None:
    """Run the mutations that the journal does not hold, and print the survivors."""
    options = _options()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    known = _known(options.journal)
    if options.survivors:
        known = {key: row for key, row in known.items() if row["outcome"] != SURVIVED}
    part, parts = options.share
    plan = chosen(options.count, options.seed, options.only)
    plan = [one for one in plan if list(SUBJECTS).index(one.module) % parts == part]
    rows = []
    for n, one in enumerate(plan, 1):
        if one.function is not None:
            importlib.import_module(_name(one.module))
        row = known.get(one.key) or _measured(one, options)
        if _is_equivalent(one):
            row["outcome"] = LEFT_OUT
        if one.key not in known:
            with options.journal.open("a") as file:
                file.write(json.dumps(row) + "\n")
            place = f"{one.module}:{one.line}"
            print(f"{n}/{len(plan)} {row['outcome']:9} {place} {one.change}", flush=True)
        rows.append(row)
    _report(rows)


def _report(rows: list[dict[str, object]]) -> None:
    survivors = [row for row in rows if row["outcome"] == SURVIVED]
    left_out = sum(row["outcome"] in {LEFT_OUT, NOT_SWAPPED} for row in rows)
    run = len(rows) - left_out
    killed = run - len(survivors)
    print(f"\n{killed} of {run} killed ({killed / max(run, 1):.1%}); {left_out} left out that")
    print("change nothing a test could notice (see EQUIVALENT) or could not be made")
    for row in survivors:
        print(f"  {row['module']}:{row['line']}  {row['change']}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], metavar="MODULE")
    parser.add_argument("--journal", type=Path, default=ROOT / "out" / "mutations.jsonl")
    parser.add_argument("--survivors", action="store_true", help="run survivors again")
    parser.add_argument("--share", type=int, nargs=2, default=[0, 1], metavar=("K", "N"),
                        help="run every N-th module only, from the K-th on")  # fmt: skip
    parser.add_argument("--thorough", action="store_true", help="run the tests of a whole folder")
    parser.add_argument("--seconds", type=float, default=300.0, help="most CPU of a stage")
    return parser.parse_args()


def _measured(mutation: Mutation, options: argparse.Namespace) -> dict[str, object]:
    result = LEFT_OUT if _is_equivalent(mutation) else SURVIVED
    for tests in _tests(mutation.module, thorough=options.thorough):
        if result != SURVIVED:
            break
        usual = _usual_seconds(mutation.module, tuple(tests), options.seconds)
        result, _ = outcome(mutation, tests, min(options.seconds, 10 + 3 * usual))
    return {"key": mutation.key, "module": mutation.module, "line": mutation.line,
            "change": mutation.change, "outcome": result}  # fmt: skip


def _is_equivalent(mutation: Mutation) -> bool:
    line = (ROOT / mutation.module).read_text().splitlines()[mutation.line - 1]
    patterns = EQUIVALENT.get(mutation.module, {})
    return any(re.search(one, f"{line}  # {mutation.change}") for one in patterns)


@functools.cache
def _usual_seconds(module: str, tests: tuple[str, ...], seconds: float) -> float:
    """Return how long the tests take of the module as it is; end the run if they fail there."""
    same = Mutation(module=module, line=0, function=None, change="", source="")
    result, used = outcome(same, list(tests), seconds)
    if result != SURVIVED:
        raise SystemExit(f"{' '.join(tests)}: {result} without any mutation; fix the tests first")
    return used


def _known(journal: Path) -> dict[str, dict[str, object]]:
    if not journal.exists():
        return {}
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return {row["key"]: row for row in lines}


if __name__ == "__main__":
    main()
