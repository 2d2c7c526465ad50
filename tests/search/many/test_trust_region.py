"""The box around the best, and the next point in it."""

import pytest
import torch

from nncfx.search import TrustRegion, next_in_trust_region


@pytest.mark.parametrize(
    ("length", "improved", "expected"),
    [
        (0.4, [True] * 3, TrustRegion(0.8)),
        (0.4, [True, True, False, True], TrustRegion(0.4, 1, 0)),  # a failure begins it anew
        (0.4, [False] * 4, TrustRegion(0.2)),
        (2.0**-6, [False] * 4, TrustRegion(0.8)),  # too small: it starts anew
    ],
)
def test_three_successes_double_the_box_and_failures_halve_it(
    length: float, improved: list[bool], expected: TrustRegion
) -> None:
    region = TrustRegion(length)
    for one in improved:
        region = region.after(improved=one, patience=4)
    assert region == expected


def test_the_next_point_is_in_the_box_around_the_best() -> None:
    points = torch.rand(12, 6, generator=torch.Generator().manual_seed(0)).tolist()
    values = [-sum(abs(a - 0.7) for a in one) for one in points]
    best = points[max(range(12), key=values.__getitem__)]
    found = next_in_trust_region(points, values, TrustRegion(0.2), seed=1)
    assert all(abs(a - b) <= 0.1 + 1e-9 for a, b in zip(found, best, strict=True))
    assert found != best
    assert found == next_in_trust_region(points, values, TrustRegion(0.2), seed=1)
