"""The journal: what it keeps, refuses and fixes."""

import json
import logging
import pathlib
from collections.abc import Callable

import pytest

from nncfx.errors import ArgumentError, CompressionError, SearchError
from nncfx.search import Measurement, Study
from nncfx.search.journal import Journal


def measure(level: float) -> Measurement:
    return Measurement(metric=1 - level, objective=level, details={"bytes": [1, 2]})


def journal_with(path: pathlib.Path, *levels: float) -> pathlib.Path:
    with Study(path, {"seed": 0}) as study:
        for level in levels:
            study.run("accuracy", level, measure)
    return path


def test_a_reopened_study_holds_the_same_trials(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "new folder" / "journal.jsonl"
    with Study(path, {"seed": 0}) as study:
        study.run("dense", 0.0, measure)
        study.run("accuracy", 0.5, measure)
        before = list(study.trials)
    with Study(path, {"seed": 0}) as study:
        assert study.trials == before
        assert list(study.notes) == []
        assert study.run("accuracy", 0.25, measure).number == 2


def test_a_trial_is_on_disk_before_run_returns(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Study(path) as study:
        study.run("accuracy", 0.5, measure)
        header, trial = path.read_text().splitlines()
    assert json.loads(header)["format"] == "nncfx-study"
    assert json.loads(trial)["details"] == {"bytes": [1, 2]}


def test_a_torn_last_line_is_dropped_and_noted(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal_with(tmp_path / "journal.jsonl", 0.5, 0.25)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with caplog.at_level(logging.WARNING), Study(path, {"seed": 0}) as study:
        assert [trial.level for trial in study.trials] == [0.5]
        assert "torn" in study.notes[0]
        study.run("accuracy", 0.25, measure)
    assert "torn" in caplog.text
    assert [json.loads(line)["level"] for line in path.read_text().splitlines()[1:]] == [0.5, 0.25]


def test_a_torn_header_starts_afresh(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"format": "nncfx-st')
    with Study(path, {"seed": 0}) as study:
        study.run("accuracy", 0.5, measure)
    with Study(path, {"seed": 0}) as study:
        assert len(study.trials) == 1


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda line: line[:-5], "is not JSON"),
        (lambda _: "3", r"is not JSON \(3 is not an object\)"),
        (lambda _: '{"number": 0}', r": This is not .*\$\.stage is missing; TrialLine cannot be"),
        (lambda line: line.replace("0.5", "1.5"), r".*\$\.level is 1\.5; a number below 1"),
        (lambda line: line.replace('"done"', '"lost"'), r".*\$\.state is 'lost'; one of 'done'"),
        (
            lambda line: line.replace('"metric": 0.5', '"metric": null'),
            "The metric is None, which is not a number",
        ),
    ],
)
def test_a_damaged_line_is_refused_with_its_number(
    tmp_path: pathlib.Path, change: Callable[[str], str], fault: str
) -> None:
    path = journal_with(tmp_path / "journal.jsonl", 0.5, 0.25)
    header, line, last = path.read_text().splitlines()
    path.write_text(f"{header}\n{change(line)}\n{last}\n")
    with pytest.raises(SearchError, match=rf"journal\.jsonl, line 2.*{fault}"):
        Study(path, {"seed": 0})


def test_a_lost_line_is_noticed(tmp_path: pathlib.Path) -> None:
    path = journal_with(tmp_path / "journal.jsonl", 0.5, 0.25)
    lines = path.read_text().splitlines()
    path.write_text(f"{lines[0]}\n{lines[2]}\n")
    with pytest.raises(SearchError, match="line 2 is trial 1 where trial 0 must be"):
        Study(path, {"seed": 0})


def test_another_header_is_refused_by_its_key(tmp_path: pathlib.Path) -> None:
    path = journal_with(tmp_path / "journal.jsonl", 0.5)
    with pytest.raises(SearchError) as caught:
        Study(path, {"seed": 1})
    assert str(caught.value) == (
        f"The study in {path} has 'seed' = 0 in its header, and this search has 1: their trials "
        "cannot be mixed. Use another folder, or delete the journal to start again."
    )
    with pytest.raises(SearchError, match="'data' = nothing in its header"):
        Study(path, {"seed": 0, "data": "abc"})


def test_other_settings_are_refused_by_their_key(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Study(path) as study:
        study.bind({"tolerance": 0.01})
        study.bind({"tolerance": 0.01})
    with (
        Study(path) as study,
        pytest.raises(SearchError, match=r"'tolerance' = 0.01 in its search"),
    ):
        study.bind({"tolerance": 0.02})


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": 1}', "is not a study"),
        ("[1]", "is not a study"),
        ('{"format": "nncfx-study", "version": 2}', "version 2"),
        ('{"format": "nncfx-study", "version": 1, "header": 3}', "is not an object"),
    ],
)
def test_a_foreign_file_is_refused_and_left_alone(
    tmp_path: pathlib.Path, line: str, reason: str
) -> None:
    path = tmp_path / "other.json"
    path.write_text(line + "\n")
    with pytest.raises(SearchError, match=reason):
        Study(path)
    assert path.read_text() == line + "\n"


def test_a_second_search_on_the_same_journal_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Study(path), pytest.raises(SearchError, match="in use by another search"):
        Study(path)
    Study(path).close()


def test_a_trial_that_raises_is_recorded_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    def fail(level: float) -> Measurement:
        raise CompressionError(f"no channels left at {level}")

    trial = Study().run("accuracy", 0.9, fail)
    assert (trial.state, trial.measurement) == ("failed", None)
    assert trial.error == "CompressionError: no channels left at 0.9"
    assert "no channels left" in caplog.text


def test_the_log_has_the_lines_of_users_code_that_failed(caplog: pytest.LogCaptureFixture) -> None:
    def fail(level: float) -> Measurement:
        raise KeyError(level)

    trial = Study().run("accuracy", 0.9, fail)
    assert trial.error == "KeyError: 0.9"
    assert "raise KeyError(level)" in caplog.text


@pytest.mark.parametrize("metric", [float("nan"), float("inf")])
def test_a_metric_that_is_not_finite_fails_the_trial(
    metric: float, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "journal.jsonl"
    with Study(path) as study:
        study.run("accuracy", 0.5, lambda _: Measurement(metric=metric, objective=1))
    with Study(path) as study:
        assert "both must be finite" in str(study.trials[0].error)


def test_an_interrupt_passes_and_leaves_no_trial() -> None:
    def interrupt(_: float) -> Measurement:
        raise KeyboardInterrupt

    study = Study()
    with pytest.raises(KeyboardInterrupt):
        study.run("accuracy", 0.5, interrupt)
    assert study.trials == []


def test_details_that_are_not_json_are_refused() -> None:
    study = Study()
    with pytest.raises(
        ArgumentError, match=r"evaluation of level 0.5 returned is not made of JSON"
    ):
        study.run(
            "accuracy",
            0.5,
            lambda _: Measurement(metric=1, objective=1, details={"a": {1}}),  # type: ignore[dict-item] # the fault
        )


def test_an_evaluation_that_returns_a_number_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"returned 0\.7, and a search needs"):
        Study().run("accuracy", 0.5, lambda _: 0.7)  # type: ignore[arg-type,return-value] # the fault


def test_a_journal_is_closed_behind_its_with(tmp_path: pathlib.Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        journal.append({"level": 0.5}, "a trial")
    journal.close()  # closing twice is allowed
    with pytest.raises(SearchError, match="is closed"):
        journal.append({"level": 0.25}, "a trial")


def test_the_folder_is_synced_once_a_new_journal_is_in_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a new file is lost with the power otherwise; lines need the file alone."""
    synced: list[pathlib.Path] = []
    monkeypatch.setattr("nncfx.search.journal.sync", synced.append)
    for _ in range(2):
        with Journal(tmp_path / "journal.jsonl") as journal:
            for level in (0.5, 0.25):
                journal.append({"level": level}, "a trial")
    assert synced == [tmp_path]


def test_a_closed_study_takes_no_trial(tmp_path: pathlib.Path) -> None:
    study = Study(tmp_path / "journal.jsonl")
    study.close()
    with pytest.raises(SearchError, match="is closed"):
        study.run("accuracy", 0.5, measure)


def test_a_folder_that_cannot_be_made_is_told_with_the_path(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SearchError, match=r"file/journal\.jsonl cannot be written"):
        Study(tmp_path / "file" / "journal.jsonl", {})


@pytest.mark.parametrize("given", [({"images": 5}, None), (None, {"images": 5})])
def test_facts_of_data_are_compared_only_where_both_studies_have_them(
    given: tuple[dict[str, int] | None, ...], tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "journal.jsonl"
    with Study(path, data=given[0]) as study:
        study.run("accuracy", 0.5, measure)
    with Study(path, data=given[1]) as study:
        assert len(study.trials) == 1
