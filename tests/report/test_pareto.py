"""The front holds the trials that nothing beats, and points stand where they belong."""

import dataclasses
import itertools

from hypothesis import given as drawn
from hypothesis import strategies as st

import report_evidence as given
from nncfx.report.pareto import Point, front, scatters


@drawn(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int, int]]) -> None:
    points = [Point(cost=c, metric=m, shape="", words="") for c, m in pairs]
    best = {(one.cost, one.metric) for one in front(points)}
    for cost, metric in set(pairs):
        beaten = any(c <= cost and m >= metric and (c, m) != (cost, metric) for c, m in set(pairs))
        assert ((cost, metric) in best) is not beaten


def test_costs_that_are_known_have_a_chart() -> None:
    charts = scatters(given.EVIDENCE)
    assert [chart.key for chart in charts] == ["latency", "bytes", "macs"]
    # 16 examples a call, 1000 examples/s
    assert any("16.0 ms" in point.words for point in charts[0].points)
    study = dataclasses.replace(given.STUDY, objective_name="beauty", objective_unit="")
    other = scatters(dataclasses.replace(given.EVIDENCE, studies=(study,)))
    assert [chart.key for chart in other] == ["bytes", "macs"]
    assert scatters(dataclasses.replace(given.EVIDENCE, studies=())) == ()


def test_a_cost_that_is_the_same_for_all_has_no_chart() -> None:
    same = tuple(dataclasses.replace(one, macs=50_000) for one in given.STUDY.samples)
    study = dataclasses.replace(given.STUDY, samples=same)
    charts = scatters(dataclasses.replace(given.EVIDENCE, studies=(study,)))
    assert [chart.key for chart in charts] == ["latency", "bytes"]


def test_points_are_ordered_as_their_costs_are() -> None:
    chart = scatters(given.EVIDENCE)[1]
    shown = sorted(chart.points, key=lambda one: one.cost)
    assert [one.shape for one in shown] == ["below", "chosen", "inside", "dense"]
    assert all(a.x < b.x for a, b in itertools.pairwise(shown))
    assert all(a.y > b.y for a, b in itertools.pairwise(shown))  # more is better, and higher
    assert shown[1].anchor == "study1-trial1"
    assert "91.00 %, 2.00 kB" in shown[1].words


def test_costs_far_apart_stand_by_their_logarithm() -> None:
    samples = tuple(
        dataclasses.replace(given.sample(n, 0.1 * n, 0.9 + 0.01 * n), macs=10**n)
        for n in (2, 4, 6)
    )
    study = dataclasses.replace(given.STUDY, samples=samples)
    points = scatters(dataclasses.replace(given.EVIDENCE, studies=(study,)))[-1].points
    trials = [one for one in points if one.shape != "dense"]
    assert trials[1].x - trials[0].x == trials[2].x - trials[1].x > 50


def test_each_cost_names_its_unit() -> None:
    titles = [chart.x_title for chart in scatters(given.EVIDENCE)]
    assert titles == ["latency (ms)", "footprint (bytes)", "MACs"]
