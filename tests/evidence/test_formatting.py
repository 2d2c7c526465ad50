"""How schemes and recoveries are spelt."""

import pytest

from nncfx.evidence.formatting import spelt
from nncfx.lc import DC, LC
from nncfx.schemes import BlockPrune, Cluster, Compose, FilterPrune, Prune, as_scheme


@pytest.mark.parametrize(
    "text",
    [
        "Prune()",
        "FilterPrune('l2norm', align=8)",
        "Compose([Prune(), Cluster(bits=5)])",
        "LC(steps=4, lr=0.1)",
        "DC()",
    ],
)
def test_what_is_spelt_makes_the_same_object(text: str) -> None:
    names = {
        one.__name__: one for one in (Prune, FilterPrune, Compose, Cluster, BlockPrune, LC, DC)
    }
    made = eval(text, names)  # noqa: S307 (the five words above)
    assert eval(spelt(made), names) == made  # noqa: S307 (what spelt wrote)


def test_defaults_are_left_out() -> None:
    assert spelt(LC(steps=4, momentum=None)) == "LC(steps=4)"


def test_a_function_is_spelt_as_its_name() -> None:
    def halve(model: object, level: float) -> None:
        del model, level

    assert spelt(as_scheme(halve)) == "FunctionScheme(halve)"
