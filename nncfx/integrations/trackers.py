"""Trackers for the numbers of a training: CSV, TensorBoard and MLflow."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from typing_extensions import override

from nncfx.errors import StorageError, needing
from nncfx.integrations.loop_compression import Tracker

__all__ = ["CSVTracker", "MLflowTracker", "TensorBoardTracker", "Tracker"]


@final
class CSVTracker(Tracker):
    """Writes a CSV file: a line for each number, with the columns step, name and value.

    Lines are appended, so a resumed training keeps earlier lines.

    Args:
        path: The file; its folder is created.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            is_new = not self._path.exists() or not self._path.stat().st_size
            self._file = self._path.open("a", newline="", encoding="utf-8")
        except OSError as error:
            raise StorageError(
                f"'{self._path}' cannot be written ({error}). Use a path that you may write to."
            ) from error
        self._rows = csv.writer(self._file)
        if is_new:
            self._rows.writerow(("step", "name", "value"))

    @override
    def log(self, values: Mapping[str, float], step: int) -> None:
        self._rows.writerows((step, name, repr(float(one))) for name, one in values.items())
        self._file.flush()

    @override
    def close(self) -> None:
        self._file.close()


@final
class TensorBoardTracker(Tracker):
    """Writes the event files of TensorBoard.

    Args:
        folder: The folder for the files.

    Raises:
        MissingExtraError: tensorboard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        with needing("tensorboard", "tensorboard", "TensorBoardTracker"):
            from torch.utils.tensorboard.writer import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder))

    @override
    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, one in values.items():
            self._writer.add_scalar(name, one, step)

    @override
    def close(self) -> None:
        self._writer.close()


@final
class MLflowTracker(Tracker):
    """Logs metrics to a run of MLflow.

    Args:
        run_id: The run; None: the active one, or a new one.
        tracking_uri: Where MLflow stores its runs; None: MLflow's own setting.

    Raises:
        MissingExtraError: mlflow is not installed.
    """

    def __init__(self, run_id: str | None = None, tracking_uri: str | None = None) -> None:
        with needing("mlflow", "mlflow", "MLflowTracker"):
            import mlflow
        self._client: Any = mlflow.MlflowClient(tracking_uri)
        active = mlflow.active_run()
        self._is_own = run_id is None and active is None
        if run_id is None:
            run_id = (
                self._client.create_run(experiment_id="0").info.run_id
                if active is None
                else active.info.run_id
            )
        self.run_id = run_id

    @override
    def log(self, values: Mapping[str, float], step: int) -> None:
        for name, one in values.items():
            self._client.log_metric(self.run_id, name, one, step=step)

    @override
    def close(self) -> None:
        if self._is_own:
            self._client.set_terminated(self.run_id)
