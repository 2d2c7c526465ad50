"""Two runs have the same functions if these do the same."""

import functools
import subprocess
import sys

import pytest

from nncfx.objectives import macs
from nncfx.schemes import AtLevel, Compose, Prune, as_scheme
from nncfx.schemes.code_digest import code_digest


def function(text: str) -> object:
    """Return the function `f` that `text` defines."""
    names: dict[str, object] = {}
    exec(text, names)  # noqa: S102 (the texts of this page)
    return names["f"]


FIRST = "def f(model, level):\n    for one in model:\n        one.mul_(level / 2)\n"


@pytest.mark.parametrize(
    "text",
    [
        FIRST.replace("/ 2", "/ 3"),
        FIRST.replace("mul_", "add_"),
        FIRST.replace("level / 2", "2 / level"),
        FIRST.replace("one.mul_(level / 2)", "one.mul_((lambda x: x / 3)(level))"),
    ],
)
def test_another_constant_name_or_order_is_another_function(text: str) -> None:
    assert code_digest(function(text)) != code_digest(function(FIRST))


def test_another_default_is_another_function() -> None:
    texts = ["def f(model, power=1): ...", "def f(model, power=2): ..."]
    texts += ["def f(model, *, power=1): ...", "def f(model, *, power=2): ..."]
    assert len({code_digest(function(text)) for text in texts}) == 4


def test_a_default_counts_without_its_address() -> None:
    text = "def f(model, loader=object()): ..."
    assert code_digest(function(text)) == code_digest(function(text))


def test_comments_and_empty_lines_make_no_other_function() -> None:
    text = FIRST.replace(":\n", ":  # remark\n\n", 1)
    assert code_digest(function(text)) == code_digest(function(FIRST))


def test_functions_are_found_inside_schemes_partials_and_lists() -> None:
    def nothing(model: object, level: float) -> None:
        del model, level

    inside = Compose([Prune(), AtLevel(as_scheme(nothing), 0.5)])
    assert code_digest(inside) == code_digest([functools.partial(nothing)]) != ""


def test_parts_of_nncfx_do_not_count() -> None:
    assert code_digest(macs, Prune(), "word") == ""


def test_every_process_gives_the_same_digest() -> None:
    """Though a set of words has another order in each."""
    script = (
        "from nncfx.schemes.code_digest import code_digest\n"
        "print(code_digest(lambda x: x in {'one', 'two', 'three', 'four'}))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
