"""Numbers are spelt with few digits, a unit and a true minus sign."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nncfx.report.format import (
    MINUS,
    bytes_text,
    metric_change_text,
    metric_text,
    moment_text,
    prefix_text,
    prefix_texts,
    ratio_text,
    significant_text,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1.00"),
        (9.996, "10.0"),
        (0.09996, "0.100"),
        (99.96, "100"),
        (1234.5, "1,234"),
        (-2.5, f"{MINUS}2.50"),
        (0.00012345, "0.000123"),
        (2.5e-07, "2.5e-07"),
        (math.nan, "not a number"),
        (math.inf, "infinite"),
        (-math.inf, f"{MINUS}infinite"),
    ],
)
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant_text(value) == text


@given(st.floats(min_value=1e-4, max_value=1e8))
def test_three_digits_are_within_half_a_percent(value: float) -> None:
    # the third digit is at worst rounded by half: 0.5 / 100
    assert float(significant_text(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


@pytest.mark.parametrize(
    ("value", "text"),
    [(999, "999 B"), (1000, "1.00 kB"), (999_600, "1.00 MB"), (243_300_000, "243 MB")],
)
def test_bytes_have_decimal_prefixes(value: int, text: str) -> None:
    assert bytes_text(value) == text


def test_a_prefix_stands_before_its_unit() -> None:
    assert prefix_text(40_813_184, "MACs") == "40.8 M MACs"


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([5000.0, 10_000.0], ["5 k", "10 k"]),
        ([500_000.0, 2_500_000.0], ["0.5 M", "2.5 M"]),
        ([500.0, 1500.0], ["500", "1500"]),
        ([-20_000.0, 0.0], [f"{MINUS}20 k", "0"]),
        ([], []),
    ],
)
def test_ticks_share_one_prefix(values: list[float], texts: list[str]) -> None:
    assert prefix_texts(values) == texts


def test_accuracy_is_a_percentage_and_its_change_is_in_points() -> None:
    assert metric_text(0.9173, "top-1 accuracy") == "91.73 %"
    assert metric_change_text(-0.0142, "top-1 accuracy") == f"{MINUS}1.42 points"


def test_another_metric_is_a_plain_number() -> None:
    assert metric_text(86.213, "perplexity") == "86.21"
    assert metric_change_text(1.5, "perplexity") == "+1.500"


def test_a_ratio_ends_in_the_sign_of_multiplication() -> None:
    assert ratio_text(1.5) == "1.50\N{MULTIPLICATION SIGN}"


def test_a_moment_keeps_the_zone_it_names() -> None:
    assert moment_text("2026-03-04T15:22:31+02:00") == "2026-03-04 15:22 UTC+02:00"
