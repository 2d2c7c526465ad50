"""Every cell says what was measured, and a dash says that nothing was."""

import dataclasses

import report_evidence as given
from nncfx.report.tables import ABSENT, layer_table, summary_table, trial_table

TIMES = "\N{MULTIPLICATION SIGN}"


def test_the_summary_has_a_row_for_each_quantity() -> None:
    rows = {
        row.name: (row.dense, row.compressed, row.change) for row in summary_table(given.EVIDENCE)
    }
    assert rows == {
        "Accuracy": ("92.00 %", "91.00 %", "\N{MINUS SIGN}1.00 points"),
        "Parameters": ("1,000", "400", f"2.50{TIMES} fewer"),
        "Non-zero parameters": ("1,000", "390", f"2.56{TIMES} fewer"),
        "MACs, one example": ("50.0 k", "20.0 k", f"2.50{TIMES} fewer"),
        "Footprint of non-zeros": ("4.00 kB", "780 B", f"5.13{TIMES} smaller"),
        "File, dense as safetensors (float32), compressed as .nncfx": (
            "4.50 kB",
            "300 B",
            f"15.0{TIMES} smaller",
        ),
        "File, both as .nncfx": ("3.60 kB", "300 B", f"12.0{TIMES} smaller"),
        "Latency, median, batch 16, 1 thread": ("2.00 ms", "1.00 ms", f"2.00{TIMES} faster"),
        "Latency, interval of the median": ("1.90 to 2.10 ms", "0.950 to 1.05 ms", "apart"),
        "Throughput": ("500 examples/s", "1.00 k examples/s", f"2.00{TIMES} higher"),
    }


def test_a_difference_that_three_digits_do_not_show_is_not_claimed() -> None:
    near = dataclasses.replace(
        given.DENSE, latency_ms=2.001, latency_interval_ms=(1.91, 2.11), throughput=500.0
    )
    rows = summary_table(dataclasses.replace(given.EVIDENCE, compressed=near))
    assert [row.change for row in rows[7:]] == [
        "about the same",
        "overlap: no clear change",
        "same",
    ]


def test_what_was_not_measured_is_a_dash() -> None:
    bare = dataclasses.replace(
        given.COMPRESSED,
        file_bytes=None,
        packed_bytes=None,
        latency_ms=None,
        latency_interval_ms=None,
        throughput=None,
    )
    rows = summary_table(dataclasses.replace(given.EVIDENCE, compressed=bare))
    assert [(row.compressed, row.change) for row in rows[5:]] == [(ABSENT, ABSENT)] * 5


def test_trials_say_what_became_of_them() -> None:
    trials = trial_table(given.STUDY, "accuracy")
    assert [trial.state for trial in trials] == [
        "dense",
        "chosen",
        "below",
        "failed",
        "inside",
        "direct",
    ]
    assert trials[3].error == "CompressionError: no filter is left"


def test_direct_compression_stands_beside_the_trial_of_its_level() -> None:
    trials = trial_table(given.STUDY, "accuracy")
    assert (trials[1].metric, trials[1].direct) == ("91.00 %", "70.00 %")
    assert (trials[5].level, trials[5].metric, trials[5].direct) == ("0.800", ABSENT, "20.00 %")


def test_layers_are_those_of_table_3() -> None:
    # conv10 of Condensa's Table 3: 0.54 ms to 0.03 ms, 18 times faster
    row = layer_table(given.LAYERS)[0]
    assert row.speedup == f"18.0{TIMES}"
    assert (row.shape_before, row.shape_after) == (
        "3 \N{RIGHTWARDS ARROW} 64",
        "3 \N{RIGHTWARDS ARROW} 16",
    )
    assert (row.kept, row.macs_ratio, row.bar_before, row.bar_after) == (
        "25.0%",
        f"4.00{TIMES}",
        "100.0%",
        "5.6%",
    )


def test_the_total_adds_up() -> None:
    total = layer_table(given.LAYERS)[-1]
    assert (total.macs_before, total.macs_after) == ("50.0 k", "20.0 k")
    assert (total.nonzero_before, total.nonzero_after) == ("1,000", "390")


def test_times_of_which_one_is_missing_have_no_speed_up_in_sum() -> None:
    rows = layer_table(given.LAYERS)
    assert rows[1].speedup == ABSENT
    assert rows[-1].speedup == ABSENT


def test_a_layer_that_is_gone_is_called_removed() -> None:
    gone = dataclasses.replace(given.LAYERS[0], channels_after=0, macs_after=0)
    row = layer_table([gone])[0]
    assert (row.shape_after, row.macs_ratio, row.kept) == ("removed", ABSENT, "0.0%")


def test_one_layer_has_no_total_and_none_has_no_row() -> None:
    assert len(layer_table(given.LAYERS[:1])) == 1
    assert layer_table([]) == ()


def test_test_and_validation_numbers_are_told_apart() -> None:
    judgement = dataclasses.replace(given.JUDGEMENT, data="testloader")
    judged = dataclasses.replace(given.EVIDENCE, judgement=judgement)
    names = [row.name for row in summary_table(judged)][:3]
    assert names == ["Accuracy, test", "Accuracy, validation", "Parameters"]
    running = dataclasses.replace(given.EVIDENCE, state="running")
    assert summary_table(running)[0].name == "Accuracy, validation"


def test_what_is_known_of_neither_model_has_no_row() -> None:
    bare = dataclasses.replace(given.DENSE, throughput=None, macs=0)
    rows = summary_table(dataclasses.replace(given.EVIDENCE, dense=bare, compressed=bare))
    assert {"Throughput", "MACs, one example"}.isdisjoint(row.name for row in rows)
