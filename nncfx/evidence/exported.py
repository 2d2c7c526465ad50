"""The exported file beside the dense model's, as plain data."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExportedFile:
    """What was measured of the file that a runtime reads; None where it was not.

    Attributes:
        runtime: That measured it; "" where none did.
        bytes: Of the file.
        dense_bytes: Of the dense model's, exported alike.
        metric: Of the file, on the data that judge.
        dense_metric: Of the dense model's.
        latency_ms: Median time of one call, in milliseconds.
        dense_latency_ms: Of the dense model's.
        batch: Examples of one such call.
        threads: CPU threads that it may use; None where the runtime chose, too.
        speed_up: The dense model's time over the file's: the median over turns in which both were
            timed, which differs from the ratio of both medians where the machine was busy.
        is_clear: Whether the speed-up is more than chance.
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
