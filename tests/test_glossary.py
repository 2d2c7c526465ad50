"""One thing, one word: the glossary says each once, and the words it replaced are gone."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

REPLACED = {
    "Bench": "CandidateTimer",
    "Exhibits": "EvidenceInputs",
    "Forge": "CandidateFactory",
    "_Asker": "QuantizableOp",
    "byte_sums": "saturation_check",
    "channel_ledger": "channel_constraints",
    "fallback": "accuracy_control",
    "float_fences": "fusion_barriers",
    "gates": "silu",
    "image_blocks": "space_to_depth_stem",
    "interception": "composite_functions",
    "is_hopeless": "should_stop_early",
    "living_norms": "masked_norm_statistics",
    "lost_arguments": "unsupported_arguments",
    "lost_state": "unexported_state",
    "named_integers": "symbolic_sizes",
    "operator_form": "qoperator_format",
    "own_weights": "unshare_weights",
    "part_biases": "prevent_bias_fusion",
    "part_clamps": "prevent_clamp_fusion",
    "part_results": "prevent_result_fusion",
    "product_ends": "gemm_fusion_guards",
    "program_sums": "saturation_check",
    "proof": "build_evidence",
    "shortcut": "shape_only_execution",
    "spelling": "function_names",
    "watching": "function_mode",
}
"""What was said before, by modules, classes and functions, and what is said now."""

REPLACED_BEGINNINGS = {"refuse_": "check_", "tell_of_": "warn_"}

NOT_YET = {
    "nncfx/tracing/calls/function_names.py": {"spelling"},
    "nncfx/tracing/calls/symbolic_sizes.py": {"named_integers"},
}
"""Names of before that stand where others are at work; whoever renames one takes it out here."""

TWO_THINGS = {
    "Attempt": "a trial of a search that ended; a set of layers that accuracy control tries",
    "Layer": "a weight with its bias; what `deep_compression` decodes, a published name",
    "Quantizer": "a hook; Hago's, which has the name it has there",
    "Rounded": "weights after one of two ways of rounding, each in a package of its own",
}
"""Classes whose names still stand for two things, and which."""


def modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((root / "nncfx").rglob("*.py")):
        yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def glossary(root: Path) -> list[tuple[str, str]]:
    """Return each term with what it means, of the table in `docs/glossary.md`."""
    rows = re.findall(
        r"^\| (.+?) \| (.+) \|$", (root / "docs/glossary.md").read_text(), re.MULTILINE
    )
    return [(term, means) for terms, means in rows[1:] for term in terms.split(", ")]


def test_the_glossary_says_each_word_once(pytestconfig: pytest.Config) -> None:
    terms = [term for term, _ in glossary(pytestconfig.rootpath)]
    assert len(terms) > 50
    assert sorted(one for one in set(terms) if terms.count(one) > 1) == []


def test_code_or_its_docstrings_use_each_word_of_the_glossary(pytestconfig: pytest.Config) -> None:
    root = pytestconfig.rootpath
    text = "\n".join(path.read_text() for path in sorted((root / "nncfx").rglob("*.py"))).lower()
    words = {re.sub(r" \(.*", "", term).lower() for term, _ in glossary(root)}
    unused = [one for one in words if one not in text and one.replace(" ", "_") not in text]
    assert sorted(unused) == []


def test_words_that_were_replaced_name_nothing_anymore(pytestconfig: pytest.Config) -> None:
    found = []
    for path, module in modules(pytestconfig.rootpath):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        defined = {one.name for one in ast.walk(module) if isinstance(one, kinds)}
        names = defined | {Path(path).stem}
        for name in names - NOT_YET.get(path, set()):
            bare = name.lstrip("_")
            better = REPLACED.get(name) or next(
                (new for old, new in REPLACED_BEGINNINGS.items() if bare.startswith(old)), None
            )
            if better:
                found.append(f"{path}: '{name}' is said as '{better}'")
    assert found == []


def test_a_public_class_has_a_name_of_its_own(pytestconfig: pytest.Config) -> None:
    places = defaultdict(list)
    for path, module in modules(pytestconfig.rootpath):
        for one in module.body:
            if isinstance(one, ast.ClassDef) and not one.name.startswith("_"):
                places[one.name].append(path)
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in TWO_THINGS} == {}
