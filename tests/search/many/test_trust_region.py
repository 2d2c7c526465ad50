"""The box around the best, and the next point in it."""

import torch

from nncfx.search import TrustRegion, next_in_trust_region


def after(region: TrustRegion, *improved: bool) -> TrustRegion:
    for one in improved:
        region = region.after(improved=one, patience=4)
    return region


def test_three_successes_double_the_box() -> None:
    assert after(TrustRegion(0.4), True, True, True) == TrustRegion(0.8)


def test_a_failure_begins_the_count_of_successes_anew() -> None:
    assert after(TrustRegion(0.4), True, True, False, True) == TrustRegion(0.4, 1, 0)


def test_failures_halve_the_box() -> None:
    assert after(TrustRegion(0.4), *[False] * 4) == TrustRegion(0.2)


def test_a_box_too_small_starts_anew() -> None:
    assert after(TrustRegion(2.0**-6), *[False] * 4) == TrustRegion(0.8)


def test_the_next_point_is_in_the_box_around_the_best() -> None:
    points = torch.rand(12, 6, generator=torch.Generator().manual_seed(0)).tolist()
    values = [-sum(abs(a - 0.7) for a in one) for one in points]
    best = points[max(range(12), key=values.__getitem__)]
    found = next_in_trust_region(points, values, TrustRegion(0.2), seed=1)
    assert all(abs(a - b) <= 0.1 + 1e-9 for a, b in zip(found, best, strict=True))
    assert found != best
    assert found == next_in_trust_region(points, values, TrustRegion(0.2), seed=1)
