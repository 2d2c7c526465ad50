"""A chart puts every sample where its level and its value are."""

import dataclasses
import itertools

import pytest

import report_evidence as given
from nncfx.evidence.evidence import Curve
from nncfx.report.chart import outcome, study_charts


def test_a_budget_too_thin_to_read_gets_its_own_chart() -> None:
    charts = study_charts(given.STUDY, "accuracy", "s1")
    assert [chart.key for chart in charts] == ["s1-accuracy", "s1-zoom", "s1-objective"]


def test_a_budget_wide_enough_needs_no_zoom() -> None:
    wide = dataclasses.replace(given.STUDY, threshold=0.4)
    charts = study_charts(wide, "accuracy", "s1")
    assert [chart.key for chart in charts] == ["s1-accuracy", "s1-objective"]


def test_every_sample_is_on_the_whole_chart_with_its_number() -> None:
    chart = study_charts(given.STUDY, "accuracy", "s")[0]
    own = [mark for mark in chart.marks if mark.number]
    assert [(mark.number, mark.shape) for mark in own] == [
        ("0", "dense"),
        ("1", "chosen"),
        ("2", "below"),
        ("3", "failed"),
        ("4", "inside"),
    ]
    assert [mark.shape for mark in chart.marks if not mark.number] == ["direct", "direct"]


def test_what_reaches_the_threshold_by_less_than_chance_is_near_and_not_below() -> None:
    threshold = given.STUDY.threshold
    near, below, safe = (
        dataclasses.replace(given.STUDY.samples[4], accuracy=threshold + gain, standard_error=0.01)
        for gain in (0.015, -0.001, 0.025)
    )
    study = dataclasses.replace(given.STUDY, samples=(near, below, safe), caution=2.0)
    assert [outcome(study, one) for one in study.samples] == ["near", "below", "inside"]
    chart = study_charts(study, "accuracy", "s")[0]
    words = [words for shape, words in chart.legend if shape in {"near", "below"}]
    assert words == ["reaches the threshold, but too near to be sure", "below the threshold"]


def test_marks_are_ordered_as_their_values_are() -> None:
    chart = study_charts(given.STUDY, "accuracy", "s")[0]
    by_number = {mark.number: mark for mark in chart.marks if mark.number}
    # levels 0, 0.25, 0.5, 0.75, 0.9 are evenly spaced but for the last
    xs = [by_number[n].x for n in "0412"]
    steps = [b - a for a, b in itertools.pairwise(xs)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)
    # y counts downward on the page: 0.92 above 0.919 above 0.91 above 0.60
    ys = [by_number[n].y for n in "0412"]
    assert ys == sorted(ys)


def test_a_failed_sample_stands_on_the_axis() -> None:
    chart = study_charts(given.STUDY, "accuracy", "s")[0]
    failed = next(mark for mark in chart.marks if mark.shape == "failed")
    assert failed.y == chart.bottom


def test_a_sample_on_the_threshold_is_inside() -> None:
    on_it = dataclasses.replace(given.STUDY.samples[4], accuracy=0.90)
    assert outcome(given.STUDY, on_it) == "inside"


def test_the_zoom_shows_only_what_is_near_the_budget() -> None:
    zoom = study_charts(given.STUDY, "accuracy", "s")[1]
    assert [mark.number for mark in zoom.marks] == ["1", "4"]
    assert zoom.top < zoom.threshold_y < zoom.bottom


def test_numbers_above_the_plot_do_not_overlap() -> None:
    crowd = tuple(given.sample(i, 0.5 + i * 1e-4, 0.91, 1000.0) for i in range(1, 15))
    study = dataclasses.replace(given.STUDY, samples=crowd)
    for chart in study_charts(study, "accuracy", "s"):
        xs = sorted(mark.label_x for mark in chart.marks if mark.number)
        assert min(b - a for a, b in itertools.pairwise(xs)) >= 19.8


def test_the_objective_has_no_threshold_and_its_own_unit() -> None:
    chart = study_charts(given.STUDY, "accuracy", "s")[-1]
    assert chart.threshold_y is None
    assert chart.y_title == "throughput (examples/s)"


def test_the_legend_names_only_what_is_shown() -> None:
    zoom = study_charts(given.STUDY, "accuracy", "s")[1]
    kinds = [kind for kind, _ in zoom.legend]
    assert kinds == ["chosen", "inside", "mean", "bracket", "threshold", "accuracy-level"]


def test_a_curve_with_points_that_are_not_finite_is_drawn_without_them() -> None:
    nan = float("nan")
    curve = Curve(levels=(0.0, 0.5), mean=(0.9, nan), lower=(nan, nan), upper=(nan, nan))
    study = dataclasses.replace(given.STUDY, accuracy_curve=curve)
    chart = study_charts(study, "accuracy", "s")[0]
    assert "nan" not in chart.mean + chart.band


def test_a_study_without_samples_is_an_empty_chart() -> None:
    study = dataclasses.replace(
        given.STUDY, samples=(), comparison=(), accuracy_curve=None, objective_curve=None
    )
    assert [chart.marks for chart in study_charts(study, "accuracy", "s")] == [(), ()]
