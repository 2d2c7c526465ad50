"""The headline says no more than the numbers bear."""

import dataclasses

import pytest

import report_evidence as given
from nncfx.evidence.evidence import Evidence
from nncfx.evidence.summary import summary
from nncfx.report import render_report
from nncfx.report.claims import checks, headline

TIMES = "\N{MULTIPLICATION SIGN}"


def evidence(**changes: object) -> Evidence:
    return dataclasses.replace(given.EVIDENCE, **changes)


def compressed(**changes: object) -> Evidence:
    return evidence(compressed=dataclasses.replace(given.COMPRESSED, **changes))


def test_speed_is_the_ratio_of_the_medians_with_the_ends_of_the_intervals() -> None:
    speed = headline(given.EVIDENCE)[0]
    assert (speed.figure, speed.label, speed.verdict) == (f"2.00{TIMES}", "faster", "good")
    # 1.9 / 1.05 and 2.1 / 0.95
    assert f"1.81{TIMES} to 2.21{TIMES}" in speed.detail


def test_overlapping_intervals_are_no_speed_up() -> None:
    speed = headline(compressed(latency_ms=1.8, latency_interval_ms=(1.7, 1.95)))[0]
    assert (speed.figure, speed.verdict) == ("No clear", "open")
    assert "the intervals overlap: dense 1.90 to 2.10 ms, compressed 1.70 to 1.95 ms" in (
        speed.detail
    )


def test_a_slower_model_is_called_slower() -> None:
    speed, size, _ = headline(evidence(dense=given.COMPRESSED, compressed=given.DENSE))
    assert (speed.figure, speed.label, speed.verdict) == (f"2.00{TIMES}", "slower", "bad")
    assert (size.figure, size.label, size.verdict) == (f"15.0{TIMES}", "larger file", "bad")


@pytest.mark.parametrize(
    ("change", "figure", "verdict"),
    [
        ({"latency_interval_ms": None}, f"2.00{TIMES}", "open"),
        ({"latency_ms": None}, f"2.00{TIMES}", "open"),
        ({"latency_ms": None, "throughput": None}, "Not timed", "open"),
    ],
)
def test_a_speed_without_interval_is_left_open(
    change: dict[str, None], figure: str, verdict: str
) -> None:
    speed = headline(compressed(**change))[0]
    assert (speed.figure, speed.verdict) == (figure, verdict)


def test_size_is_that_of_the_file() -> None:
    size = headline(given.EVIDENCE)[1]
    assert (size.figure, size.label) == (f"15.0{TIMES}", "smaller file")


def test_without_a_file_the_size_is_the_footprint_and_says_so() -> None:
    size = headline(compressed(file_bytes=None))[1]
    assert (size.figure, size.label) == (f"5.13{TIMES}", "smaller footprint")
    assert "no file was written" in size.detail


@pytest.mark.parametrize(
    ("accuracy", "words", "verdict"),
    [
        (0.90, "inside the budget", "good"),
        (0.8999, "outside the budget", "bad"),
        (0.95, "inside the budget", "good"),
        (float("nan"), "outside the budget", "bad"),
    ],
)
def test_accuracy_is_held_against_the_budget(accuracy: float, words: str, verdict: str) -> None:
    claim = headline(compressed(accuracy=accuracy))[2]
    assert words in claim.detail
    assert claim.verdict == verdict


def test_the_strictest_budget_counts() -> None:
    strict = dataclasses.replace(given.STUDY, threshold=0.915)
    assert headline(evidence(studies=(given.STUDY, strict)))[2].verdict == "bad"


def test_without_a_study_there_is_no_budget() -> None:
    claim = headline(evidence(studies=()))[2]
    assert claim.verdict == "open"
    assert "budget" not in claim.detail


@pytest.mark.parametrize(
    ("error", "verdict"), [(1e-5, "good"), (1.1e-5, "bad"), (float("nan"), "bad")]
)
def test_thinned_equals_masked_up_to_the_bar(error: float, verdict: str) -> None:
    found = checks(evidence(max_thinning_error=error))
    assert found[0].verdict == verdict


def test_a_file_that_holds_another_model_fails() -> None:
    found = checks(evidence(file_accuracy=0.9099))
    assert found[1].verdict == "bad"
    assert "claimed is 91.00 %" in found[1].detail


def test_what_was_not_checked_is_not_claimed() -> None:
    bare = evidence(max_thinning_error=None, file_accuracy=None)
    assert checks(bare) == ()


def judged(**changes: object) -> Evidence:
    return evidence(judgement=dataclasses.replace(given.JUDGEMENT, **changes))


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "good"),
        ({"interval": (-0.01, 0.03)}, "open"),  # chance may have decided
        ({"interval": None}, "open"),
        ({"held_out": False}, "open"),  # counted on what chose the model
        ({"loss": 0.021, "interval": (0.0, 0.03)}, "bad"),
    ],
)
def test_a_budget_is_kept_where_the_interval_on_other_data_says_so(
    changes: dict[str, object], verdict: str
) -> None:
    assert headline(judged(**changes))[2].verdict == verdict


def test_the_claim_of_accuracy_names_interval_and_data() -> None:
    detail = headline(judged())[2].detail
    minus = "\N{MINUS SIGN}"
    assert (
        f"{minus}1.00 points ({minus}1.60 points to {minus}0.40 points with 95 %), inside the "
        f"budget of {minus}2.00 points, on 2,000 examples of valloader, held out, which chose "
        "nothing"
    ) in detail


def test_a_loss_beyond_the_budget_is_the_first_thing_on_the_page() -> None:
    bad = judged(loss=0.031, interval=(0.022, 0.04))
    page = render_report(bad)
    assert "Outside the budget" in page
    assert page.index("Outside the budget") < page.index('class="claims"')
    assert "Outside the budget" not in render_report(judged())
    assert "Outside the budget" not in render_report(given.EVIDENCE)


def test_sizes_are_compared_in_one_format_too() -> None:
    size = headline(given.EVIDENCE)[1]
    assert size.figure == f"15.0{TIMES}"
    assert f"12.0{TIMES} with the dense model as .nncfx too, 3.60 kB" in size.detail


def test_a_speed_says_of_what_call() -> None:
    assert headline(given.EVIDENCE)[0].detail.endswith("per call: batch 16, 1 thread")
    old = evidence(batch=None, threads=None)
    assert headline(old)[0].detail.endswith("per call: threads as the runtime chose")
    assert "batch 16, 1 thread" in render_report(given.EVIDENCE)


def test_an_own_objective_has_a_line_in_the_summary() -> None:
    own = dataclasses.replace(given.STUDY, objective_name="joules", chosen_level=0.25)
    lines = summary(evidence(studies=(own,))).splitlines()
    assert lines[-1].split() == ["joules", "500", "->", "700", "0.71x", "(examples/s)"]
    assert "throughput" not in summary(given.EVIDENCE)


def test_a_space_has_no_dense_trial_whose_objective_could_be_told() -> None:
    samples = tuple(
        dataclasses.replace(given.STUDY.samples[number], number=number, candidate=words)
        for number, words in enumerate(("bits 3", "bits 5"))
    )
    space = dataclasses.replace(
        given.STUDY, objective_name="joules", dense_objective=None, samples=samples, chosen=1
    )
    found = evidence(studies=(space,))
    reached = samples[1].objective
    assert summary(found).splitlines()[-1].split() == [
        "joules",
        "->",
        f"{reached:,.0f}",
        "(examples/s)",
    ]
    claim = headline(found)[-1]
    assert (claim.label, claim.verdict) == ("joules", "open")
    assert claim.detail.endswith("examples/s at bits 5")
