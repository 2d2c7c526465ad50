"""Every way in which a forward may change a buffer is seen, and the buffer keeps its values."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nncfx.errors import TracingError
from nncfx.tracing.record.tensor_writes import written_tensors


def _reassign(model: "Writing", x: Tensor) -> None:
    model.table = model.table + x.mean()


def _set_data(model: "Writing", x: Tensor) -> None:
    model.table.data = x[:, :4].clone()


def _out(model: "Writing", x: Tensor) -> None:
    torch.add(x, 1, out=model.table)


WRITES: dict[str, Callable[["Writing", Tensor], object]] = {
    "an element": lambda model, x: model.table.__setitem__(0, x[0]),
    "in place": lambda model, x: model.table.add_(x),
    "past autograd": lambda model, x: model.table.data.copy_(x),
    "a view past autograd": lambda model, x: model.table.data[1:].mul_(x[1:]),
    "a view": lambda model, x: model.table[0].copy_(x[0]),
    "detached": lambda model, x: model.table.detach().zero_().add_(x),
    "all at once": lambda model, x: torch._foreach_add_([model.table], [x]),
    "as a result": _out,
    "another tensor": _reassign,
    "another memory": _set_data,
}


class Writing(nn.Module):
    """Reads a table, and writes to it in one way; another table only moves in training."""

    table: Tensor
    trained: Tensor

    def __init__(self, write: Callable[["Writing", Tensor], object] | None) -> None:
        super().__init__()
        self.register_buffer("table", torch.zeros(4, 4))
        self.register_buffer("trained", torch.zeros(4, 4))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        result = x @ self.table + x @ self.trained
        with torch.no_grad():
            if self.write is not None:
                self.write(self, x)
            if self.training:
                self.trained += 1
        return result


NAMES = ["table", "trained"]


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("how", WRITES)
def test_a_write_is_seen_whatever_it_writes_and_taken_back(how: str, value: int) -> None:
    model = Writing(WRITES[how]).eval()
    table, x = model.table, torch.full((4, 4), float(value))
    assert written_tensors(model, x, NAMES, train=False) == {"table"}
    assert model.table is table
    assert not table.any()
    assert not model.training


def test_what_only_training_writes_is_seen_in_training() -> None:
    model, x = Writing(None), torch.ones(4, 4)
    assert written_tensors(model, x, NAMES, train=False) == set()
    assert written_tensors(model, x, NAMES, train=True) == {"trained"}


@pytest.mark.parametrize("read", [torch.Tensor.to, torch.Tensor.type_as, torch.Tensor.contiguous])
def test_what_returns_the_buffer_itself_writes_nothing(read: Callable[..., Tensor]) -> None:
    """As `torch.nn.utils.prune` reads its masks."""

    def reading(model: Writing, x: Tensor) -> None:
        read(model.table, *(() if read is torch.Tensor.contiguous else (x,)))

    inputs = torch.randn(4, 4)
    assert not written_tensors(Writing(reading), inputs, ["table"], train=False)


def test_other_buffers_are_not_asked_about() -> None:
    model = Writing(WRITES["in place"])
    assert written_tensors(model, torch.ones(4, 4), ["trained"], train=False) == set()


def test_a_buffer_of_two_names_is_written_under_both() -> None:
    inside = Writing(WRITES["past autograd"])
    model = nn.Sequential(inside, nn.Linear(4, 4), inside)
    names = ["0.table", "2.table"]
    assert written_tensors(model, torch.ones(4, 4), names, train=False) == set(names)


def test_a_model_that_refuses_its_inputs_says_so() -> None:
    with pytest.raises(TracingError, match="refuses the example inputs"):
        written_tensors(Writing(None), torch.ones(4, 5), NAMES, train=True)
