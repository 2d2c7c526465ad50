"""Trackers write what they are told, where others read it."""

import csv
from pathlib import Path

import pytest

from nncfx.errors import StorageError
from nncfx.integrations.trackers import CSVTracker, MLflowTracker, TensorBoardTracker, Tracker


def tell(tracker: Tracker) -> None:
    tracker.log({"compression/level": 0.25}, 3)
    tracker.log({"compression/level": 0.5}, 6)
    tracker.close()


def test_csv_goes_on_where_it_was(tmp_path: Path) -> None:
    for _ in range(2):
        tell(CSVTracker(tmp_path / "run" / "level.csv"))
    rows = list(csv.reader((tmp_path / "run" / "level.csv").read_text().splitlines()))
    assert rows[0] == ["step", "name", "value"]
    assert rows[1:] == 2 * [["3", "compression/level", "0.25"], ["6", "compression/level", "0.5"]]
    with pytest.raises(StorageError, match="cannot be written"):
        CSVTracker(tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_reads_what_was_written(tmp_path: Path) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    tell(TensorBoardTracker(tmp_path))
    events = reading.EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(one.step, one.value) for one in events.Scalars("compression/level")]
    assert found == [(3, 0.25), (6, 0.5)]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    address = (tmp_path / "runs").as_uri()
    tracker = MLflowTracker(tracking_uri=address)
    tell(tracker)
    client = mlflow.MlflowClient(address)
    history = client.get_metric_history(tracker.run_id, "compression/level")
    assert [(one.step, one.value) for one in history] == [(3, 0.25), (6, 0.5)]
    assert client.get_run(tracker.run_id).info.status == "FINISHED"
    tell(MLflowTracker(tracker.run_id, address))
    assert len(client.get_metric_history(tracker.run_id, "compression/level")) == 4
