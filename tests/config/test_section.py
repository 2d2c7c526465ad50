"""Sections: JSON out and in again."""

import dataclasses
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from nncfx.config import Fault, NNCFConfig, Section, SparsityParams, option, required
from nncfx.config.option import Limits
from nncfx.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner(Section):
    """Inner."""

    low: int = option(0, "the low end")
    high: int = option(1, "the high end")

    def rules(self) -> Iterator[Fault]:
        if self.low > self.high:
            yield Fault(path="low", problem="above 'high'.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer(Section):
    """Outer."""

    parts: tuple[Inner, ...] = option((), "the parts", limits=Limits(min_items=1))
    name: str = required("a name")
    note: str | None = option(None, "a note")


def told(data: object) -> str:
    try:
        Outer.from_dict(data)  # type: ignore[arg-type]
    except ConfigError as error:
        return str(error)
    return ""


def test_what_is_unset_is_not_written() -> None:
    assert Outer(name="x", parts=(Inner(),)).to_dict() == {
        "parts": [{"low": 0, "high": 1}],
        "name": "x",
    }


def test_a_rule_deep_inside_names_its_place() -> None:
    assert "parts[1].low: above 'high'." in told({"name": "x", "parts": [{}, {"low": 5}]})


def test_a_fault_elsewhere_does_not_hide_a_rule() -> None:
    text = told({"parts": [{"low": 5}], "nam": "x"})
    assert "parts[0].low: above" in text
    assert "the key 'name' is missing" in text
    assert "Did you mean 'name'?" in text


def test_a_list_that_is_too_short_is_told() -> None:
    assert "parts: has 0 entries; at least 1 are needed" in told({"name": "x", "parts": []})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
keys = st.sampled_from(["compression", "input_info", "ignored_scopes", "params", "algorithm"])


@given(st.dictionaries(keys | st.text(max_size=5), json_values, max_size=4) | json_values)
def test_any_json_is_read_or_refused_with_a_config_error(data: object) -> None:
    try:
        config = NNCFConfig.from_dict(data)  # type: ignore[arg-type]
    except ConfigError:
        return
    assert NNCFConfig.from_dict(config.to_dict()) == config


@given(
    st.builds(
        SparsityParams,
        sparsity_target=st.floats(0, 1, exclude_max=True),
        power=st.floats(0.1, 9),
        sparsity_target_epoch=st.integers(0, 500),
        steps_per_epoch=st.none() | st.integers(1, 500),
        schedule=st.sampled_from(["polynomial", "exponential"]),
    )
)
def test_a_section_survives_json(params: SparsityParams) -> None:
    assert SparsityParams.from_dict(params.to_dict()) == params
