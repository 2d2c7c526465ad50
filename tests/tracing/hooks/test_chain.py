"""Hooks of a chain see what those before have made, and may only change values."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import HookError
from nncfx.tracing.hooks.chain import HookChain, carried, carry, drop, is_alike, substitute


class State(NamedTuple):
    """As a recurrent cell returns."""

    hidden: torch.Tensor
    cell: torch.Tensor


class Add(nn.Module):
    """Adds a number, and notes what it was given."""

    def __init__(self, number: float) -> None:
        super().__init__()
        self.number, self.seen = number, list[float]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(float(x.sum()))
        return x + self.number


class Return(nn.Module):
    """Returns what it was made with."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result

    def forward(self, _: torch.Tensor) -> Any:  # noqa: ANN401 (what a faulty hook returns)
        return self.result


def test_hooks_are_applied_in_order() -> None:
    first, second = Add(1.0), Add(10.0)
    assert HookChain("Net/relu_0", (first, second))(torch.zeros(1)).tolist() == [11.0]
    assert (first.seen, second.seen) == ([0.0], [1.0])


REFUSED = {
    "a list": ([1.0], "returned a list"),
    "shape": (torch.zeros(3), r"returned shape \(3,\) for shape \(2,\)"),
    "dtype": (torch.zeros(2, dtype=torch.float64), "returned torch.float64 for torch.float32"),
    "device": (torch.zeros(2, device="meta"), "returned a tensor on meta for one on cpu"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("count", [1, 2])
def test_a_hook_that_returns_another_kind_of_tensor_is_refused(name: str, count: int) -> None:
    """Whether it is carried alone, as its module does, or behind another."""
    result, reason = REFUSED[name]
    chain = HookChain("Net/relu_0", (*[Add(1.0)] * (count - 1), Return(result)))
    module = nn.ReLU()
    carry(module, {"_hook": chain})
    with pytest.raises(HookError, match=f"The hook Return at 'Net/relu_0' {reason}"):
        carried(module, "_hook", torch.zeros(2))


def test_what_a_module_carries_is_taken_from_it_without_a_trace() -> None:
    module = nn.ReLU()
    before = dict(vars(module))
    carry(module, {"_one": HookChain("a", (Add(1.0),)), "_two": HookChain("b", (Add(2.0),) * 2)})
    assert [carried(module, key, torch.zeros(1)).item() for key in ("_one", "_two")] == [1.0, 4.0]
    drop(module)
    drop(module)
    assert vars(module) == before


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype")
def test_nested_tensors_are_alike_whatever_their_parts() -> None:
    """They have no shape of their own; a plain tensor is none."""
    nested = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    assert is_alike(nested, nested.clone())
    assert not is_alike(torch.zeros(2), nested)
    assert not is_alike(nested, torch.zeros(2))


def test_under_autocast_a_hook_may_return_another_dtype() -> None:
    x = torch.zeros(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert is_alike(x.bfloat16(), x)
        assert not is_alike(x.bfloat16()[:1], x)
    assert not is_alike(x.bfloat16(), x)
    assert not is_alike(torch.zeros(2, device="meta", dtype=torch.half), x.to("meta"))


def test_tensors_at_chosen_ports_are_replaced_wherever_they_lie() -> None:
    """Ports count the tensors in order; whatever holds them keeps its type."""
    a, b, c, d = (torch.tensor(float(n)) for n in range(4))
    largest = torch.ones(2, 2).max(0)  # of two tensors
    values = ([a, (b, "axis")], {"bias": c, "size": torch.Size([2])}, largest, d)
    chains = {port: Add(10.0 * port) for port in (1, 2, 4, 5)}
    found, port = substitute(values, chains, 0)
    (first, pair), named, ranked, last = found
    assert port == 6
    assert (first is a, [x.item() for x in (pair[0], named["bias"], last)]) == (True, [11, 22, 53])
    assert ranked.indices.tolist() == [40, 40]
    assert ranked.values is largest.values
    assert [type(one) for one in (found, found[0], pair, named, ranked, named["size"])] == [
        type(one) for one in (values, values[0], values[0][1], values[1], largest, torch.Size())
    ]
    assert pair[1] == "axis"


def test_a_named_tuple_keeps_its_type() -> None:
    state = State(torch.zeros(1), torch.zeros(1))
    found, port = substitute(state, {4: Add(1.0)}, 3)
    assert type(found) is State
    assert (found.hidden.item(), found.cell.item(), port) == (0.0, 1.0, 5)


def test_a_hook_that_does_not_fit_is_named_and_a_fault_of_the_machine_passes() -> None:
    class Fail(nn.Module):
        def __init__(self, error: RuntimeError) -> None:
            super().__init__()
            self.error = error

        def forward(self, _: torch.Tensor) -> torch.Tensor:
            raise self.error

    given = torch.ones(3, 2)
    chain = HookChain("conv.weight", (Fail(RuntimeError("sizes 3 and 4")),))
    with pytest.raises(HookError, match=r"Fail at 'conv.weight' .* \(3, 2\): sizes 3 and 4"):
        chain(given)
    holder = nn.Module()
    carry(holder, {"_nncf_weight": chain})
    with pytest.raises(HookError, match=r"Fail at 'conv.weight'"):
        carried(holder, "_nncf_weight", given)
    with pytest.raises(torch.OutOfMemoryError):
        HookChain("conv.weight", (Fail(torch.OutOfMemoryError("full")),))(given)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_script_of_a_hook_that_learns_says_what_to_do() -> None:
    config = {"compression": {"algorithm": "quantization"}}
    x = torch.randn(2, 4)
    _, model = nncfx.create_compressed_model(
        nn.Sequential(nn.Linear(4, 3)), config, x, calibration_batches=[x]
    )
    model.eval()
    with pytest.raises(HookError, match=r"torch.jit.trace makes .*requires_grad_\(False\)"):
        torch.jit.trace(model, x)  # type: ignore[no-untyped-call]  # torch leaves it so
    script = torch.jit.trace(model.requires_grad_(False), x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(script(x), model(x))
