"""JSON and patterns of strangers are read within bounds."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from nncfx.errors import GraphError, NNCFXError, StorageError
from nncfx.evidence.evidence import Evidence
from nncfx.graph import NNCFGraph
from nncfx.network import wrap
from nncfx.runtimes import LatencyTable
from nncfx.schemes import Prune
from nncfx.targets import Hardware
from nncfx.thinning.files.recipe import ThinRecipe
from nncfx.tracing.calls.input_specs import inputs_from
from nncfx.untrusted import is_found, read_json

DEEP = "[" * 100_000 + "]" * 100_000
CATASTROPHIC = "{re}(a+)+(a+)+(a+)+$"


@pytest.mark.parametrize("text", [DEEP, "[" * 500 + "]" * 500, '{"a":' * 200 + "1" + "}" * 200])
def test_deep_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="nested"):
        read_json(text)


def test_a_hundred_levels_are_read() -> None:
    assert read_json("[" * 100 + "]" * 100) is not None


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "[-1e999]"])
def test_numbers_that_are_not_finite_are_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="not finite"):
        read_json(text)


@pytest.mark.parametrize(
    "reader",
    [
        *(Evidence.from_json, Hardware.from_json, LatencyTable.from_json, NNCFGraph.from_json),
        ThinRecipe.from_json,
    ],
)
@pytest.mark.parametrize("text", [DEEP, '{"a": 1e999}', "null", "[]", "\x00"])
def test_every_reader_of_json_refuses_with_an_error_of_ours(
    reader: Callable[[str], object], text: str
) -> None:
    with pytest.raises(NNCFXError):
        reader(text)


def test_a_pattern_that_backtracks_without_end_is_given_up() -> None:
    """`re` needs 2^n steps for this; the search is given up within seconds."""
    with pytest.raises(GraphError, match="backtracks without end"):
        is_found(CATASTROPHIC, "a" * 5000 + "!")


def test_scopes_and_layers_refuse_such_a_pattern() -> None:
    model = nn.Sequential()
    model.add_module("a" * 3000 + "_", nn.Linear(2, 2))
    with pytest.raises(GraphError, match="backtracks without end"):
        Prune(ignored=[CATASTROPHIC]).parameters(model)
    network = wrap(model, torch.ones(1, 2))
    with pytest.raises(GraphError, match="backtracks without end"):
        network.nncf.graph.select([CATASTROPHIC])


def test_lookaheads_work_as_in_re() -> None:
    assert is_found(r"{re}layer(?!1)", "layer2")
    assert not is_found(r"{re}layer(?!1)", "layer1")


def test_patterns_of_any_length_are_not_compiled() -> None:
    with pytest.raises(GraphError, match="at most 1,000"):
        is_found("{re}" + "a|" * 1000, "a")


TERABYTES = {"kind": "tensor", "shape": [1 << 20, 1 << 20], "dtype": "float32"}


@pytest.mark.parametrize(
    "described",
    [
        TERABYTES,
        {"kind": "tuple", "items": [TERABYTES]},
        {"kind": "mapping", "items": {"x": TERABYTES}},
    ],
)
def test_example_inputs_of_any_size_are_not_made(described: dict[str, object]) -> None:
    """A checkpoint of 200 bytes can describe 4 TiB: 2^40 floats of 4 bytes."""
    with pytest.raises(StorageError, match=r"4,398,046,511,104 bytes"):
        inputs_from(described, torch.device("cpu"))


@pytest.mark.parametrize("shape", [[-1], ["a"], [1.5], None, 3])
def test_a_shape_that_is_none_is_refused(shape: object) -> None:
    with pytest.raises(StorageError, match="damaged"):
        inputs_from({"kind": "tensor", "shape": shape, "dtype": "float32"}, torch.device("cpu"))


@pytest.mark.parametrize("dtype", ["nn", "Tensor", "float33", 3])
def test_a_type_that_torch_does_not_have_is_refused(dtype: object) -> None:
    with pytest.raises(StorageError, match="damaged"):
        inputs_from({"kind": "tensor", "shape": [1], "dtype": dtype}, torch.device("cpu"))
