"""What dataclasses say in JSON reads back, and what strangers wrote is refused by its place."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.errors import StorageError
from nncfx.hago import Strategy
from nncfx.json_codec import Limits, decode, encode, load_object
from nncfx.runtimes import LatencyTable
from nncfx.search import CandidateTrial, Trial
from nncfx.thinning import ThinRecipe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """A value inside another."""

    name: str
    size: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Whole:
    """One field of each type that is read."""

    kind: Literal["one", "other"]
    share: Annotated[float, Limits(minimum=0, below=1)]
    bits: Annotated[int, Limits(above=1, maximum=8)] = 8
    parts: Mapping[str, Part] = dataclasses.field(default_factory=dict)
    choice: float | int | str = 0
    several: Annotated[float, Limits(above=0)] | tuple[float, ...] = 1.0
    pair: tuple[str, bool] | None = None
    free: Any = None


wholes = st.builds(
    Whole,
    kind=st.sampled_from(["one", "other"]),
    share=st.floats(0, 1, exclude_max=True),
    bits=st.integers(2, 8),
    parts=st.dictionaries(
        st.text(), st.builds(Part, name=st.text(), size=st.lists(st.integers()).map(tuple))
    ),
    choice=st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.text(),
    several=st.floats(1e-9, 1e9) | st.lists(st.floats(-9, 9)).map(tuple),
    pair=st.none() | st.tuples(st.text(), st.booleans()),
    free=st.none() | st.lists(st.integers()),
)


@given(wholes)
def test_what_is_written_reads_back_with_its_types(whole: Whole) -> None:
    assert repr(decode(Whole, encode(whole))) == repr(whole)


@given(wholes)
def test_what_is_as_by_default_may_stay_away(whole: Whole) -> None:
    assert decode(Whole, encode(whole, omit="defaults")) == whole


def test_what_is_none_or_as_by_default_is_left_out_if_asked() -> None:
    whole = Whole(kind="one", share=0.5, bits=4)
    assert encode(whole, omit="defaults") == {"kind": "one", "share": 0.5, "bits": 4}
    assert encode(whole).keys() - encode(whole, omit="none").keys() == {"pair", "free"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "third"}, "$.kind is 'third'; one of 'one', 'other' is expected here."),
        ({"kind": ["one"]}, "$.kind is ['one']; one of"),
        ({"share": 1}, "$.share is 1; a number below 1 is expected here."),
        ({"share": -0.1}, "$.share is -0.1; a number at least 0 is expected here."),
        ({"share": "nan"}, "$.share is 'nan'; a number is expected here."),
        ({"share": math.nan}, "$.share is nan; a finite number is expected here."),
        ({"share": 10**400}, "a number is expected here."),
        ({"bits": 9}, "$.bits is 9; a number at most 8 is expected here."),
        ({"bits": 1}, "$.bits is 1; a number above 1 is expected here."),
        ({"bits": True}, "$.bits is True; a whole number is expected here."),
        ({"bits": 8.0}, "$.bits is 8.0; a whole number is expected here."),
        ({"bits": None}, "$.bits is None; a whole number is expected here."),
        ({"parts": {"a": {"name": 1}}}, "$.parts.a.name is 1; a string is expected here."),
        ({"parts": {"a": {"name": "b", "size": [1, "2"]}}}, "$.parts.a.size[1] is '2'; a whole"),
        ({"choice": None}, "$.choice is None; a string is expected here."),
        ({"several": 0}, "$.several is 0; an array is expected here."),
        ({"pair": ["a"]}, "$.pair has 1 items; 2 are expected."),
        (
            {"bit": 8},
            "$.bit is not a field of Whole; this file is of another kind or version. Did",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(change: dict[str, object], message: str) -> None:
    with pytest.raises(StorageError, match=re.escape(message)):
        decode(Whole, {"kind": "one", "share": 0.5} | change)


def test_five_faults_are_told_at_once_and_no_more() -> None:
    with pytest.raises(StorageError) as raised:
        decode(Whole, dict.fromkeys("abcdefg", 0))
    assert str(raised.value).count("is not a field of Whole") == 5


def test_numbers_that_are_not_finite_are_read_where_they_may_stand() -> None:
    assert encode((math.nan, math.inf, -math.inf)) == ["nan", "inf", "-inf"]
    assert decode(tuple[float, ...], ["inf", "-inf"], finite=False) == (math.inf, -math.inf)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, '{"a": 1e999}', '{"a": NaN}'])
def test_text_that_holds_no_object_is_refused(text: str) -> None:
    with pytest.raises(StorageError, match=r"of recipes|The recipes is not JSON"):
        load_object(text, "recipes")


TABLE = {
    "latency_table": 1,
    "machine": {"a": "b"},
    "samples": {"k": [{"size": [1.0, 2.0], "ms": 0.5}]},
    "scale": 1.5,
}
TRIAL = {
    "number": 0,
    "stage": "accuracy",
    "level": 0.5,
    "state": "done",
    "metric": 0.9,
    "objective": 2.0,
    "standard_error": 0.1,
    "details": {"a": [1, None]},
    "error": None,
    "seconds": 1.5,
    "started": "t",
    "after": 2,
}
FAILED = {
    "number": 0,
    "stage": "accuracy",
    "level": 0.5,
    "state": "failed",
    "metric": None,
    "objective": None,
    "details": {},
    "error": "E",
    "seconds": 1.5,
    "started": "t",
}
CANDIDATE = {
    "number": 0,
    "candidate": {"a": 0.5, "b": 4, "c": "x"},
    "state": "done",
    "outcomes": {"m": 1.0},
    "error": None,
    "seconds": 1.5,
    "started": "t",
}
STRATEGY = {
    "model_hash": 12,
    "topology": {"node_conds": [False, True], "edge_conds": [True, False]},
    "bits": [8],
    "thresholds": [1.0, [0.5, 0.25]],
}
RECIPE = {
    "format": "nncfx thin recipe",
    "version": 1,
    "model_class": "torch.nn.Sequential",
    "removed": [{"tensor": "0.weight", "axis": 0, "entries": [1, 4]}],
    "sizes": {"0": {"out_channels": 6, "kernel_size": [3, 3]}},
}


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (json.dumps(TABLE, indent=1), lambda text: LatencyTable.from_json(text).to_json()),
        (json.dumps(TRIAL), lambda text: json.dumps(Trial.from_json(json.loads(text)).to_json())),
        (json.dumps(FAILED), lambda text: json.dumps(Trial.from_json(json.loads(text)).to_json())),
        (
            json.dumps(CANDIDATE),
            lambda text: json.dumps(CandidateTrial.from_json(json.loads(text)).to_json()),
        ),
        (
            json.dumps(STRATEGY),
            lambda text: json.dumps(Strategy.from_json(json.loads(text)).to_json()),
        ),
        (json.dumps(RECIPE, indent=1), lambda text: ThinRecipe.from_json(text).to_json()),
    ],
    ids=["table", "trial", "failed trial", "candidate", "strategy", "recipe"],
)
def test_what_was_written_before_there_was_a_codec_reads_and_is_written_as_it_was(
    text: str, again: Callable[[str], str]
) -> None:
    assert again(text) == text
