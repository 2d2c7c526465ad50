"""The metric of a model computed in the runtime instead of torch."""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import nn
from typing_extensions import override

from nncfx.errors import ArgumentError, NNCFXError, error_text
from nncfx.runtimes.protocol.runtime import Session

Metric: TypeAlias = Callable[[nn.Module, Iterable[Any]], float]
"""Maps a model and an iterable of `(inputs, targets)` to a number, as in `nncfx.Compressor`."""


class SessionModule(nn.Module):
    """A session as a module: its forward runs the model in the runtime.

    It has no parameters and no gradients. A single output is returned as a tensor, several as a
    tuple in the order of the file. The caller has to close the session.
    """

    def __init__(self, session: Session) -> None:
        """Wrap `session`."""
        super().__init__()
        self._session = session

    @override
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor | tuple[torch.Tensor, ...]:
        arrays = self._session.run(kwargs or args)
        outputs = tuple(torch.from_numpy(array) for array in arrays)
        return outputs[0] if len(outputs) == 1 else outputs


def metric_through(session: Session, batches: Iterable[Any], metric: Metric) -> float:
    """Return the metric of the model on the user's data, computed in the runtime.

    Args:
        session: of the runtime; with an open batch axis the last batch may be smaller.
        batches: as `metric` reads them, such as a `DataLoader` of `(inputs, targets)`.
        metric: maps a model and `batches` to a number; the same function as for torch.

    Raises:
        ArgumentError: the metric fails, or returns something other than a number.
        RuntimeFailure: the runtime rejects a batch.
    """
    name = getattr(metric, "__name__", type(metric).__name__)
    try:
        return float(metric(SessionModule(session), batches))
    except NNCFXError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"Metric '{name}' fails on the model in the runtime: {error_text(error)}. "
            "It gets a module without parameters, whose forward takes what the file takes."
        ) from error
