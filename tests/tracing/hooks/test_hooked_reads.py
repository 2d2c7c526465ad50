"""Promises of nncfx.tracing.hooks.hooked_reads: hooks on weights apply while a forward runs."""

import copy
import pickle
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, parametrize, prune, vector_to_parameters
from torch.nn.utils.parametrizations import orthogonal
from torch.nn.utils.parametrizations import weight_norm as parametrized_norm
from torch.nn.utils.weight_norm import weight_norm
from torch.utils.checkpoint import checkpoint

from nncfx.errors import TracingError
from nncfx.network import NNCFNetwork, strip, wrap
from nncfx.tracing import Insertion, WeightSite

X = torch.linspace(-1, 1, 8).view(2, 4)


class Mask(nn.Module):
    """Takes away the second half of what it is given, and the gradient there."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1.0, 1.0, 0.0, 0.0])


class Block(nn.Module):
    """Reads a child's weight beside calling another."""

    def __init__(self) -> None:
        super().__init__()
        self.called, self.read = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(torch.tanh(self.called(x)), self.read.weight)


class Net(nn.Module):
    """A block, and a second way in."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.scale = Block(), nn.Parameter(torch.linspace(1, 2, 4))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.block(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x) * self.scale


NAMES = ("block.called.weight", "block.read.weight", "scale")


def hooked(model: nn.Module, *names: str, x: torch.Tensor = X) -> NNCFNetwork:
    wrapped = wrap(model, x)
    wrapped.nncf.register([Insertion(WeightSite.of(one), Mask(), 0, "test") for one in names])
    wrapped.nncf.commit()
    return wrapped


def pair() -> tuple[NNCFNetwork, Net]:
    """Return a model with masks, and a plain one of the same outputs."""
    torch.manual_seed(0)
    plain = Net()
    model = hooked(copy.deepcopy(plain), *NAMES)
    with torch.no_grad():
        for one in (plain.block.called.weight, plain.block.read.weight, plain.scale):
            one.mul_(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    return model, plain


def layer() -> tuple[NNCFNetwork, nn.Parameter]:
    torch.manual_seed(0)
    plain = nn.Linear(4, 4)
    return hooked(plain, "weight"), dict(plain.named_parameters())["weight"]


def by_optimizer(one: nn.Linear) -> None:
    optimizer = torch.optim.SGD([one.weight], lr=1.0)
    one(X).sum().backward()
    optimizer.step()


def by_vector(one: nn.Linear) -> None:
    vector_to_parameters(torch.full((16,), 0.3), [one.weight])


def by_copy(one: nn.Linear) -> None:
    with torch.no_grad():
        one.weight.copy_(torch.full((4, 4), 0.3))


def by_data(one: nn.Linear) -> None:
    one.weight.data = torch.full((4, 4), 0.3)


def zeroed(one: nn.Module) -> None:
    if isinstance(one, nn.Linear):
        nn.init.zeros_(one.weight)


WRITES: dict[str, Callable[[Any], Any]] = {
    "clamp": lambda one: one.weight.data.clamp_(-0.01, 0.01),
    "data": by_data,
    "init": lambda one: nn.init.constant_(one.weight, 0.3),
    "copy": by_copy,
    "reset": lambda one: one.reset_parameters(),
    "assign": lambda one: setattr(one, "weight", nn.Parameter(torch.full((4, 4), 0.3))),
    "apply": lambda one: one.apply(zeroed),
    "vector": by_vector,
    "optimizer": by_optimizer,
    "half": lambda one: one.weight.data.copy_(one.weight.half()),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_a_hooked_weight_reaches_the_parameter(write: Callable[[Any], Any]) -> None:
    model, weight = layer()
    before, plain = weight.detach().clone(), nn.Linear(4, 4)
    plain.load_state_dict({"weight": before, "bias": model.bias})
    if write is by_optimizer:  # the gradient is the sum of inputs, half of which the mask stops
        with torch.no_grad():
            plain.weight -= X.sum(0) * torch.tensor([1.0, 1.0, 0.0, 0.0])
    else:
        torch.manual_seed(1)
        write(plain)
    torch.manual_seed(1)
    write(model)
    stored = model.state_dict()["weight"]
    assert torch.equal(stored, plain.weight)
    assert not torch.equal(stored, before) or write is WRITES["half"]
    assert model.weight is dict(model.named_parameters())["weight"]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer_is_initialized_again(kind: type[nn.RNNBase]) -> None:
    model = hooked(kind(4, 4), "weight_ih_l0", x=torch.ones(1, 1, 4))
    for one in (model.weight_ih_l0, model._flat_weights[1]):
        nn.init.constant_(one, 0.25)
    stored = dict(model.named_parameters())
    assert bool((stored["weight_ih_l0"] == 0.25).all())
    assert bool((stored["weight_hh_l0"] == 0.25).all())


def test_a_weight_has_the_gradient_of_its_parameter_and_is_clipped() -> None:
    model, weight = layer()
    (model(X).sum() * 100).backward()
    assert model.weight.grad is weight.grad
    expected = X.sum(0) * torch.tensor([100.0, 100.0, 0.0, 0.0])
    torch.testing.assert_close(weight.grad, expected.expand(4, 4))
    clip_grad_norm_([model.weight], 1.0)
    assert float(weight.grad.norm()) <= 1.0 + 1e-5


CALLS: dict[str, Callable[[Any], torch.Tensor]] = {
    "root": lambda model: model(X),
    "root's forward": lambda model: model.forward(X),
    "another method": lambda model: model.features(X),
    "a part": lambda model: model.block(X),
    "a part's forward": lambda model: model.block.forward(X),
    "a layer": lambda model: model.block.called(X),
    "functional_call": lambda model: torch.func.functional_call(
        model, {"scale": torch.full((4,), 3.0)}, (X,)
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_model_computes_with_its_hooks_however_it_is_called(
    call: Callable[[Any], torch.Tensor],
) -> None:
    model, plain = pair()
    expected = call(plain)
    if call is CALLS["functional_call"]:
        expected = expected * torch.tensor([1.0, 1.0, 0.0, 0.0])
    assert torch.equal(call(model), expected)
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 (its own)
        assert torch.equal(call(copied), expected)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_model_with_methods_of_its_own_instances_computes_with_its_hooks(
    call: Callable[[Any], torch.Tensor],
) -> None:
    torch.manual_seed(0)
    model, (_, plain) = Net(), pair()
    for one in (model, model.block, model.block.called):
        one.forward = partial(type(one).forward, one)  # type: ignore[method-assign]  # on purpose
    hooked(model, *NAMES)
    if "forward" not in next(name for name, one in CALLS.items() if one is call):
        assert torch.equal(call(model), call(plain)) or call is CALLS["functional_call"]


def test_no_hook_applies_once_a_forward_has_failed() -> None:
    model, _ = pair()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.ones(1, 3))
    assert model.scale is dict(model.named_parameters())["scale"]


class Waiting(nn.Module):
    """Shows what another thread reads while the forward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: self.seen.append(self.layer.weight))
        thread.start()
        thread.join()
        return self.layer(x)


def test_another_thread_reads_parameters_while_a_forward_runs() -> None:
    model = hooked(Waiting(), "layer.weight")
    model.seen.clear()
    model(X)
    assert model.seen[0] is model.layer.weight


def test_threads_compute_with_the_hooks_at_once() -> None:
    model, plain = pair()
    got: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: got.append(model(X))) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(got) == 8
    assert all(torch.equal(one, plain(X)) for one in got)


class Recomputed(nn.Module):
    """Gives `checkpoint` a module, or a method that reads weights itself."""

    def __init__(self, part: str, *, reentrant: bool) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(4, 4), Block()
        self.part, self.reentrant = part, reentrant

    def method(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(F.linear(x, self.first.weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.part == "plain":
            return self.method(x)
        function = self.block if self.part == "module" else self.method
        x = x if self.part == "method" else F.linear(x, self.first.weight)
        return checkpoint(function, x, use_reentrant=self.reentrant)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True:UserWarning")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("part", ["module", "method"])
def test_what_checkpoint_computes_again_has_the_hooks(part: str, *, reentrant: bool) -> None:
    grads = []
    for kind in ("plain", part):
        torch.manual_seed(0)
        names = ("first.weight", "block.called.weight", "block.read.weight")
        model = hooked(Recomputed(kind, reentrant=reentrant), *names)
        model(X.clone().requires_grad_()).square().sum().backward()
        grads.append([one.grad for _, one in sorted(model.named_parameters())])
    for one, other in zip(*grads, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)
    assert any(one is not None and one.any() for one in grads[0])


def test_a_compiled_model_computes_with_its_hooks_and_leaves_writes_alone() -> None:
    model, plain = pair()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    part = torch.compile(model.block, fullgraph=True, backend="eager")
    assert torch.equal(compiled(X), plain(X))
    assert torch.equal(part(X), plain.block(X))
    for one in (model, plain):
        nn.init.constant_(one.block.called.weight, 0.5)
    with torch.no_grad():
        plain.block.called.weight.mul_(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert torch.equal(compiled(X), plain(X))
    assert torch.equal(part(X), plain.block(X))


def test_a_compiled_model_is_the_first_that_a_thread_runs_and_runs_again() -> None:
    model, plain = pair()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    got: list[torch.Tensor] = []

    def work() -> None:
        got.extend(compiled(X) for _ in range(3))

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert len(got) == 6
    assert all(torch.equal(one, plain(X)) for one in got)


class Broken(nn.Module):
    """Breaks the graph, and reads a child's weight behind the break."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @torch._dynamo.disable  # type: ignore[untyped-decorator]  # torch leaves it so
    def uncompiled(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.uncompiled(torch.sin(x))
        return torch.cos(F.linear(x, self.layer.weight))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
def test_hooks_apply_behind_a_graph_break() -> None:
    torch.manual_seed(0)
    plain = Broken()
    model = hooked(copy.deepcopy(plain), "layer.weight")
    with torch.no_grad():
        plain.layer.weight.mul_(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), plain(X))
    assert model.layer.weight is dict(model.named_parameters())["layer.weight"]


def test_a_compiled_step_that_writes_to_a_weight_reaches_the_parameter() -> None:
    model, weight = layer()

    def step(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = model(x)
        with torch.no_grad():
            model.weight.fill_(0.25)
        return result

    expected = model(X)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(step, fullgraph=True, backend="eager")(X), expected)
    assert bool((weight == 0.25).all())


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_computes_with_the_hooks(*, strict: bool) -> None:
    model, plain = pair()
    torch._dynamo.reset()
    program = torch.export.export(model, (X,), strict=strict)
    torch.testing.assert_close(program.module()(X), plain(X))


REPLACING: dict[str, Callable[[Any], Any]] = {
    "weight_norm": parametrized_norm,
    "orthogonal": orthogonal,
    "old weight_norm": weight_norm,
    "prune": lambda one: prune.l1_unstructured(one, "weight", 0.5),  # type: ignore[no-untyped-call]  # torch's
    "delete": lambda one: delattr(one, "weight"),
    "other parameter": lambda one: parametrize.register_parametrization(one, "bias", Mask()),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("replace", REPLACING.values(), ids=REPLACING)
def test_what_computes_a_hooked_weight_from_others_is_refused(
    replace: Callable[[Any], Any],
) -> None:
    model, _ = layer()
    expected = model(X)
    with pytest.raises(TracingError, match=r"before nncfx\.wrap"):
        replace(model)
    if replace not in (weight_norm, orthogonal):  # which have changed it without asking the module
        assert torch.equal(model(X), expected)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_weight_norm_before_wrapping_reads_hooked_in_a_layer_that_is_called_alone() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.ReLU())
    hooked(model, "0.weight_v")
    direction = model[0].weight_v.detach() * torch.tensor([1.0, 1.0, 0.0, 0.0])
    weight = model[0].weight_g * direction / direction.norm(dim=1, keepdim=True)
    torch.testing.assert_close(model[0](X), F.linear(X, weight, model[0].bias))


def test_the_interface_reads_a_weight_through_its_hooks() -> None:
    model, plain = pair()
    for name in (*NAMES, "block.called.bias"):
        assert torch.equal(model.nncf.weight(name), plain.get_parameter(name))
        assert torch.equal(model.nncf.weight(name), strip(model).get_parameter(name))


@pytest.mark.parametrize("part", ["", "block", "block.called"])
def test_symbolic_tracing_of_a_part_with_hooks_is_refused(part: str) -> None:
    model, _ = pair()
    with pytest.raises(TracingError, match=r"would lose them.*nncfx\.strip.*torch\.export"):
        torch.fx.symbolic_trace(model.get_submodule(part))
    torch.fx.symbolic_trace(strip(model).get_submodule(part))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_torch_jit_traces_a_model_with_its_hooks_and_does_not_script_it() -> None:
    model, plain = pair()
    with pytest.warns(DeprecationWarning, match=r"torch.jit"):
        traced = torch.jit.trace(model, (X,))  # type: ignore[no-untyped-call]  # torch leaves it so
    assert torch.equal(traced(X), plain(X))
    for part in (model, model.block.called):
        with (
            pytest.warns(DeprecationWarning, match="torch.jit"),
            pytest.raises(TracingError, match=r"nncfx\.strip"),
        ):
            torch.jit.script(part)
