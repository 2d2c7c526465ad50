"""A guessed name leads to the place of what it may mean, and nothing is imported for that."""

import subprocess
import sys

import pytest

import nncfx
from nncfx.guesses import _MEANT, home_of


def test_places_that_are_named_are_there() -> None:
    for text in _MEANT.values():
        for word in text.replace("(", " ").replace(",", " ").split():
            if word.startswith("nncfx."):
                place: object = nncfx
                for part in word.split(".")[1:]:
                    place = getattr(place, part)
                    if part == "wrap":
                        break


def test_asking_imports_no_package() -> None:
    code = "import sys, nncfx; hasattr(nncfx, 'CausalLM'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["nothing_like_it", "_private"])
def test_a_name_without_a_meaning_has_no_place(name: str) -> None:
    assert home_of(name) == ""
