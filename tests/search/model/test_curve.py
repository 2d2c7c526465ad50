"""The curve for the report."""

import pytest

from nncfx.errors import ArgumentError
from nncfx.search import posterior_curve


def test_the_mean_passes_through_what_was_measured_exactly() -> None:
    levels, values = [0.0, 0.5, 0.8, 0.95], [950.0, 940.0, 900.0, 400.0]
    curve = posterior_curve(levels, values, levels, noise=1e-3)
    # noise is 5e-6 of the spread of the values, so the mean is within a few of them
    assert curve.mean == pytest.approx(values, abs=0.01)
    assert all(
        low <= y <= high for low, y, high in zip(curve.lower, values, curve.upper, strict=True)
    )


def test_the_band_is_wider_where_nothing_was_measured() -> None:
    curve = posterior_curve([0.0, 0.9], [1.0, 0.5], [0.0, 0.45], noise=0.01)
    widths = [high - low for low, high in zip(curve.lower, curve.upper, strict=True)]
    assert widths[1] > 2 * widths[0]


@pytest.mark.parametrize(
    ("levels", "values", "grid", "noise", "message"),
    [
        ([0.5], [1.0], [0.1], None, "at least two"),
        ([0.5, 0.6], [1.0], [0.1], None, "2 levels with 1 values"),
        ([0.5, 1.0], [1.0, 2.0], [0.1], None, "1.0 is not a level"),
        ([0.5, 0.6], [1.0, 2.0], [90], None, "90 is not a level"),
        ([0.5, 0.6], [1.0, float("nan")], [0.1], None, "The value nan"),
        ([0.5, 0.6], [1.0, 2.0], [0.1], 0.0, "noise is 0.0"),
    ],
)
def test_what_makes_no_curve_is_refused(
    levels: list[float], values: list[float], grid: list[float], noise: float, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        posterior_curve(levels, values, grid, noise=noise)
