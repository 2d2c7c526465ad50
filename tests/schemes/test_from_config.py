"""Schemes in JSON mean what the same settings mean in Python."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from nncfx import schemes
from nncfx.config import Fault, SchemeConfig, SearchedScheme
from nncfx.config.scheme import KEYS_OF_SCHEMES
from nncfx.schemes.from_config import scheme_faults, scheme_from, schemes_from

# what JSON cannot hold: the channel analysis of a model
_OF_PYTHON = {"channels"}


@pytest.mark.parametrize("name", sorted(KEYS_OF_SCHEMES))
def test_the_keys_of_a_scheme_are_the_fields_of_its_class(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(getattr(schemes, name))}
    assert KEYS_OF_SCHEMES[name] == fields - _OF_PYTHON


@pytest.mark.parametrize("name", sorted(KEYS_OF_SCHEMES))
def test_a_name_alone_is_the_default_of_the_class(name: str) -> None:
    assert scheme_from(SchemeConfig(name=name)) == getattr(schemes, name)()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "scheme"),
    [
        ({"name": "Prune", "ignored": "{re}^head"}, schemes.Prune(ignored=("{re}^head",))),
        ({"name": "EntropyQuantize", "bits": 12.8}, schemes.EntropyQuantize(12.8)),
        (
            {"name": "FilterPrune", "normalize": False, "ignored": ["a", "b"]},
            schemes.FilterPrune(normalize=False, ignored=("a", "b")),
        ),
        ({"name": "NeuronPrune", "prune_bias": False}, schemes.NeuronPrune(prune_bias=False)),
        (
            {"name": "Quantize", "dtype": "bfloat16", "restore": "float64"},
            schemes.Quantize("bfloat16", restore="float64"),
        ),
    ],
)
def test_every_key_is_the_argument_of_that_name(
    keys: dict[str, Any], scheme: schemes.Scheme
) -> None:
    assert scheme_from(SchemeConfig.from_dict(keys)) == scheme


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"name": "Prune", "layers": []}, "layers is empty"),
        ({"name": "Prune", "layers": ["lstn"]}, "'lstn'"),
        ({"name": "Cluster", "bits": 12}, "bits is 12; a code has 1 to 8 bits"),
        ({"name": "Cluster", "choices": {"bits": [4, 2.5]}}, "bits is 2.5"),
    ],
)
def test_what_the_class_refuses_is_a_fault_at_its_place(keys: dict[str, Any], said: str) -> None:
    (fault,) = scheme_faults([SearchedScheme.from_dict(keys)], "search.schemes")
    assert isinstance(fault, Fault)
    assert fault.path == "search.schemes[0]"
    assert said in fault.problem


def test_modules_that_all_schemes_ignore_come_beside_their_own() -> None:
    own = SchemeConfig.from_dict({"name": "Prune", "ignored": "stem"})
    assert schemes_from([own], ["head"]) == schemes.Prune(ignored=("stem", "head"))


def test_one_ignored_module_needs_no_list() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    choice: Any = "1"
    schemes.Prune(ignored=choice).compress(model, 0.9)
    first, second = (torch.count_nonzero(layer.weight).item() for layer in model)
    assert (first, second) == (1, 16)  # floor(0.1 * 16) weights stay
