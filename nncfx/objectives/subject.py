"""The interface of a candidate for measurements."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Subject(Protocol):
    """A candidate model together with the ways to measure it.

    The search supplies the subject and decides which runtime, threads and example inputs a
    measurement uses. A measurement that takes time (throughput, latency, file size) runs when its
    method is called, and the subject may cache the result.
    """

    @property
    def model(self) -> Any:  # noqa: ANN401 (this layer knows nothing of torch)
        """The compressed model itself, an `nn.Module`."""
        ...

    def footprint_bytes(self) -> float:
        """Return the bytes of the non-zero parameters (Condensa's memory footprint)."""
        ...

    def macs(self) -> float:
        """Return the multiply-accumulates of one forward pass of one example."""
        ...

    def parameters(self) -> float:
        """Return the number of parameters, including zeros."""
        ...

    def throughput(self) -> float:
        """Return the examples per second on the chosen runtime."""
        ...

    def latency_ms(self) -> float:
        """Return the milliseconds of one call on the chosen runtime."""
        ...

    def file_bytes(self) -> float:
        """Return the bytes of the model as a file on disk."""
        ...
