"""The exported file compared with the dense model's, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExportedFile:
    """The measurements of the exported file; None if not measured.

    Attributes:
        runtime: The runtime of the measurements; "" if there are none.
        bytes: Of the file.
        dense_bytes: Of the dense model's file, exported the same way.
        metric: Of the file, on the data that judge.
        dense_metric: Of the dense model's file.
        latency_ms: Median time of one call, in milliseconds.
        dense_latency_ms: Of the dense model's file.
        batch: Examples per call.
        threads: CPU threads per call; None if the runtime chose.
        speed_up: The dense model's time over the file's: the median over turns in which both were
            timed, which differs from the ratio of the medians if the machine was busy.
        is_clear: Whether the speed-up exceeds noise.
        is_inside: Whether the metric keeps the budget of the search.
    """

    runtime: str
    bytes: int
    dense_bytes: int | None = None
    metric: float | None = None
    dense_metric: float | None = None
    latency_ms: float | None = None
    dense_latency_ms: float | None = None
    batch: int | None = None
    threads: int | None = None
    speed_up: float | None = None
    is_clear: bool | None = None
    is_inside: bool | None = None
