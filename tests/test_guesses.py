"""A guessed name leads to the place of what it may mean, and nothing is imported for that."""

from collections.abc import Callable

import pytest

import nncfx
from nncfx.controllers.base.nncf_names import _INSTEAD
from nncfx.guesses import _MEANT, home_of
from nncfx.quantization import quantize_mixed, quantize_with_accuracy_control


def test_places_that_are_named_are_there() -> None:
    for text in (*_MEANT.values(), *_INSTEAD.values()):
        for word in text.replace("(", " ").replace(",", " ").split():
            if word.startswith("nncfx."):
                place: object = nncfx
                for part in word.split(".")[1:]:
                    place = getattr(place, part)
                    if part == "wrap":
                        break


@pytest.mark.parametrize("name", ["nothing_like_it", "_private"])
def test_a_name_without_a_meaning_has_no_place(name: str) -> None:
    assert home_of(name) == ""


def test_names_of_nncf_after_training_have_a_place() -> None:
    with pytest.raises(AttributeError, match=r"'Dataset' is here: any iterable of batches"):
        nncfx.Dataset  # noqa: B018 (an attribute that is not there)
    with pytest.raises(AttributeError, match="ignored_scopes="):
        nncfx.IgnoredScope  # noqa: B018 (as above)


@pytest.mark.parametrize(
    ("function", "name", "told"),
    [
        (nncfx.quantize, "subset_size", r"quantize\(\) .* is here: samples=300"),
        (nncfx.quantize, "calibration_dataset", "is here: calibration_batches"),
        (nncfx.quantize_weights, "ratio", "is here: int8_scopes"),
        (nncfx.create_compressed_model, "dummy_forward_fn", "is here: example_inputs"),
        (nncfx.quantize, "sample", "Did you mean 'samples'"),
        (quantize_mixed, "prset", r"quantize_mixed\(\) .*Did you mean 'preset'"),
        (quantize_mixed, "group_sise", "Did you mean 'group_size'"),
        (quantize_with_accuracy_control, "ignored_scope", "is here: ignored_scopes="),
    ],
)
def test_arguments_of_nncf_have_a_place(
    function: Callable[..., object], name: str, told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        function(**{name: 1})
