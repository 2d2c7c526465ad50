"""What a candidate offers for measuring."""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Subject(Protocol):
    """A candidate model together with the ways to measure it.

    Whoever runs a search supplies the subject and decides which runtime, which threads and which
    example inputs a measurement uses. A measurement that costs time (throughput, latency, file
    size) is made when its method is called, not before, and a subject may remember the answer.
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
        """Return the number of parameters, zeros included."""
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
