"""Give torch the shapes of recurrent layers, which it finds by running them step by step."""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

__all__ = ["recurrent_shapes"]


@contextlib.contextmanager
def recurrent_shapes() -> Iterator[None]:
    """Let fake tensors pass through LSTMs and GRUs by their shapes alone.

    Their ONNX operators loop themselves, but torch 2.13 has to know what they return: where axes
    are open it captures a loop of each layer and direction, and runs all steps, twice, as it
    decomposes, which takes a second for 20 steps and fixes their number.
    """
    # torch's own registration of its loops, of which these take the place
    from torch.export import _patches as loops

    kept = loops.gru_while_loop_impl, loops.lstm_while_loop_impl
    loops.gru_while_loop_impl, loops.lstm_while_loop_impl = _gru, _lstm
    try:
        with (
            loops.register_gru_while_loop_decomposition(),
            loops.register_lstm_while_loop_decomposition(),
        ):
            yield
    finally:
        loops.gru_while_loop_impl, loops.lstm_while_loop_impl = kept


def _gru(x: Tensor, state: Tensor, *options: object) -> tuple[Tensor, Tensor]:
    return _outputs(x, state, *options), torch.empty_like(state)


def _lstm(x: Tensor, state: Sequence[Tensor], *options: object) -> tuple[Tensor, Tensor, Tensor]:
    hidden, cell = state
    return _outputs(x, hidden, *options), torch.empty_like(hidden), torch.empty_like(cell)


def _outputs(x: Tensor, hidden: Tensor, *options: object) -> Tensor:
    """Return a tensor like the outputs of all steps: (time, batch, directions x width).

    Args:
        x: (time, batch, features), or (batch, time, features) where the last option says so.
        hidden: the state, (layers x directions, batch, width).
        options: weights, biases or not, layers, dropout, training, bidirectional, batch first.
    """
    bidirectional, batch_first = options[-2:]
    time, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    outputs = x.new_empty(time, batch, hidden.shape[-1] * (2 if bidirectional else 1))
    return outputs.transpose(0, 1) if batch_first else outputs
