"""Promises of nncfx.tracing.hooks.activation_hooks."""

import copy
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

from nncfx.errors import HookError, TracingError
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, PostSite, PreSite, run
from nncfx.tracing.calls.tensors import tensors_in
from small_models import Applied, Case, Function, inputs, make


def double() -> Applied:
    """Doubles, which floating point does exactly."""
    return Applied(lambda x: x * 2)


class Count(nn.Module):
    """Changes nothing and counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x


def hook(
    model: NNCFNetwork, *sites: PreSite | PostSite, kind: Callable[[], nn.Module] = double
) -> list[nn.Module]:
    hooks = [kind() for _ in sites]
    model.nncf.register(
        [Insertion(site, one, 0, "test") for site, one in zip(sites, hooks, strict=True)]
    )
    model.nncf.commit()
    return hooks


def net() -> Function:
    """Calls relu itself, and through a child, and shares a layer."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        first = F.relu(x)
        second = m.norm(m.act(first - 1))
        second += F.relu(x + 1)
        return torch.cat([second, m.act(x - 3)], 1)

    return Function(forward, act=nn.ReLU(), norm=nn.BatchNorm1d(4))


def expected(x: torch.Tensor, site: str) -> torch.Tensor:
    """Return what `Net` computes in evaluation mode with a doubled tensor at `site`."""

    def at(name: str, tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2 if name == site else tensor

    norm = nn.BatchNorm1d(4).eval()
    first = at("relu_0", F.relu(x))
    second = norm(at("act_0", F.relu(at("act_0_in", first - 1))))
    third = at("relu_1", F.relu(at("relu_1_in", x + 1)))
    return torch.cat([at("iadd", second + third), at("cat_1", at("act_1", F.relu(x - 3)))], 1)


SITES = {
    "relu_0": PostSite("Function/relu_0"),
    "relu_1": PostSite("Function/relu_1"),
    "relu_1_in": PreSite("Function/relu_1", 0),
    "act_0": PostSite("Function/ReLU[act]/relu_0"),
    "act_0_in": PreSite("Function/ReLU[act]/relu_0", 0),
    "act_1": PostSite("Function/ReLU[act]/relu_1"),
    "iadd": PostSite("Function/__iadd___0"),
    "cat_1": PreSite("Function/cat_0", 1),
}


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-5, 5, 12).view(3, 4)


@pytest.mark.parametrize("site", SITES)
def test_a_hook_stands_exactly_at_its_site(site: str, x: torch.Tensor) -> None:
    model = wrap(net().eval(), x)
    hook(model, SITES[site])
    assert torch.equal(model(x), expected(x, site))


@pytest.mark.parametrize("site", SITES)
def test_training_mode_does_not_move_a_hook(site: str, x: torch.Tensor) -> None:
    # batch norm counts its batches with an in-place addition, which is not the model's own
    model = wrap(net(), x)
    (count,) = hook(model, SITES[site], kind=Count)
    model(x)
    model(x)
    assert count.calls == 2


def test_every_hook_is_asked_once_in_a_forward_and_changes_nothing(case: Case) -> None:
    model = wrap(case.make().eval(), case.inputs)
    # gradients keep torch from its fused encoder path, whose last bits differ
    raw = list(tensors_in(run(model, case.inputs)))
    operations = model.nncf.graph.operations
    before = [PreSite(one.address, port) for one in operations for port in range(len(one.inputs))]
    after = [PostSite(one.address, port) for one in operations for port in range(len(one.outputs))]
    hooks = hook(model, *before, *after, kind=Count)
    got = list(tensors_in(run(model, case.inputs)))
    assert [one.calls for one in hooks] == [1] * len(hooks)
    assert all(torch.equal(one, other) for one, other in zip(raw, got, strict=True))


def test_a_fused_encoder_layer_asks_its_hooks_without_gradients() -> None:
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), torch.ones(1, 3, 8)
    model = wrap(layer, x)
    (count,) = hook(
        model, PostSite("TransformerEncoderLayer/Linear[linear1]/linear_0"), kind=Count
    )
    with torch.no_grad():
        model(x)
    assert count.calls == 1
    model.nncf.remove("test")
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", ["first", "second"])
def test_what_a_users_own_hook_calls_can_be_hooked(name: str) -> None:
    model, x = nn.Sequential(), torch.ones(1, 2)
    for one in ("first", "second"):
        model.add_module(one, nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    model.get_submodule(name).register_forward_hook(lambda _, __, result: result.cos())
    model = wrap(model, x)
    (address,) = (one for one in model.nncf.graph.addresses if one.endswith("cos_0"))
    (count,) = hook(model, PostSite(address), kind=Count)
    model(x)
    assert count.calls == 1


def test_an_encoder_with_hooks_takes_sequences_of_several_lengths_without_gradients() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x, padding = (
        torch.linspace(-1, 1, 48).view(2, 3, 8),
        torch.tensor([[False] * 3, [False, True, True]]),
    )
    encoder = nn.TransformerEncoder(layer, 2).eval()
    raw = encoder(x, src_key_padding_mask=padding)  # with gradients no tensor is nested
    model = wrap(encoder, {"src": x, "src_key_padding_mask": padding})
    (attention, *_) = model.nncf.graph.select(["{function}scaled_dot_product_attention"])
    (count,) = hook(model, PostSite(attention.address), kind=Count)
    with torch.no_grad():
        got = model(x, src_key_padding_mask=padding)
    assert count.calls == 1
    torch.testing.assert_close(got, raw)  # the second layer, without hooks, runs fused
    model.nncf.remove("test")
    assert encoder.use_nested_tensor
    assert not any(
        "_nncf" in name for one in encoder.modules() for name in vars(one) if one is not model
    )


def test_a_keyword_argument_of_a_module_is_hooked() -> None:

    model, x = Function(lambda m, x: m.layer(input=x), layer=nn.Linear(2, 2)), torch.ones(1, 2)
    wrap(model, x)
    doubled = model(x * 2)
    hook(model, PreSite("Function/Linear[layer]/linear_0", 0))
    assert torch.equal(model(x), doubled)


def test_only_the_hooked_modules_change_their_class() -> None:
    model = wrap(make("LeNet"), inputs("LeNet"))
    hook(model, PostSite("LeNet/Conv2d[conv1]/conv2d_0"))
    assert type(model.conv1) is not nn.Conv2d
    assert type(model.conv2) is nn.Conv2d
    assert isinstance(model.conv1, nn.Conv2d)


def test_threads_do_not_disturb_each_other(x: torch.Tensor) -> None:
    model = wrap(net().eval(), x)
    hook(model, SITES["relu_1"], SITES["act_1"], SITES["cat_1"])
    alone = [model(x + number) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            together = list(pool.map(model, (x + number for number in range(8))))
            assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_a_module_called_by_itself_counts_from_its_first_call(x: torch.Tensor) -> None:
    model = wrap(net().eval(), x)
    hook(model, SITES["act_0"])
    assert torch.equal(model.act(x), F.relu(x) * 2)


def test_a_forward_set_on_an_instance_is_refused(x: torch.Tensor) -> None:
    model = net().eval()
    model.act.forward = torch.tanh  # type: ignore[method-assign]  # what is tested
    wrap(model, x)
    model.nncf.register([Insertion(PostSite("Function/ReLU[act]/tanh_0"), double(), 0, "test")])
    with pytest.raises(TracingError, match="'act' has a forward of its own"):
        model.nncf.commit()


def test_assigning_to_elements_has_no_output_to_hook() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[0] = 1
            return y

    model = wrap(Model(), torch.zeros(2))
    with pytest.raises(LookupError, match="assigns to elements"):
        hook(model, PostSite("Model/__setitem___0"))
    with pytest.raises(LookupError, match="changes its first input in place"):
        hook(model, PreSite("Model/__setitem___0", 0))


def test_what_a_statement_changes_has_no_input_to_hook() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            y.relu_()
            return y

    model = wrap(Model(), torch.zeros(2))
    with pytest.raises(LookupError, match="changes its first input in place"):
        hook(model, PreSite("Model/relu__0", 0))


@pytest.mark.parametrize("site", SITES)
def test_a_hooked_model_compiles_without_graph_breaks(site: str, x: torch.Tensor) -> None:
    model = wrap(net().eval(), x)
    hook(model, SITES[site])
    torch._dynamo.reset()
    compiled = torch.compile(copy.deepcopy(model), fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), model(x))


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")  # of modes
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("site", SITES)
def test_a_hooked_model_exports(site: str, strict: bool, x: torch.Tensor) -> None:
    model = wrap(net().eval(), x)
    hook(model, SITES[site])
    program = torch.export.export(model, (x,), strict=strict)
    assert torch.equal(program.module()(x), model(x))


class Operators(nn.Module):
    """Writes its operations as Python's operators, a tensor on either side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x @ x.t() + (2 - x[:, :3]) * 3
        y = -y / (1 + y**2) - 4 / (y + 99)
        y -= 2**y
        return y % 3


class Functions(nn.Module):
    """Calls functions that torch does not list as overridable, and two that call methods."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardswish(F.sigmoid(x) - F.tanh(x))
        return torch.relu_(F.hardsigmoid(y))


@pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects")  # of modes
@pytest.mark.parametrize(
    "read",
    [
        lambda model, x: torch.export.export(model, (x,)).module(),
        lambda model, x: torch.export.export(model, (x,), strict=True).module(),
        lambda model, _: torch.compile(model, fullgraph=True, backend="eager"),
    ],
    ids=["export", "strict", "compile"],
)
@pytest.mark.parametrize(("kind", "count"), [(Operators, 16), (Functions, 6)])
def test_hooks_at_operators_and_functions_are_read(
    read: Callable[[nn.Module, torch.Tensor], nn.Module],
    kind: type[nn.Module],
    count: int,
    x: torch.Tensor,
) -> None:
    model = wrap(kind(), x)
    addresses = model.nncf.graph.addresses
    assert len(addresses) == count
    for address in addresses:
        hooked = wrap(kind(), x)
        hook(hooked, PostSite(address))
        torch._dynamo.reset()
        assert torch.equal(read(hooked, x)(x), hooked(x)), address
        assert not torch.equal(hooked(x), model(x))


class Shared(nn.Module):
    """Calls a part twice that calls a function itself, and a layer of its own twice."""

    def __init__(self) -> None:
        super().__init__()
        self.part = net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.part(self.part(x)[:, 4:])  # type: ignore[no-any-return]  # of a module


@pytest.mark.parametrize("site", ["relu_2", "relu_3", "ReLU[act]/relu_1", "ReLU[act]/relu_2"])
@torch.no_grad()
def test_a_part_that_is_compiled_by_itself_knows_its_calls(site: str, x: torch.Tensor) -> None:
    model = wrap(Shared().eval(), x)
    before = model(x)
    hook(model, PostSite(f"Shared/Function[part]/{site}"))
    expected = model(x)
    assert not torch.equal(expected, before)
    torch._dynamo.reset()
    model.part.compile(backend="eager")
    for _ in range(2):
        assert torch.equal(model(x), expected)


def around_recurrent() -> Function:
    """Calls functions before and behind a layer at which torch.compile gives up."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        read, _ = m.layer(F.relu(x))
        return F.relu(read + x)

    return Function(forward, layer=nn.GRU(3, 3, batch_first=True))


@pytest.mark.parametrize("site", ["relu_0", "relu_1", "__add___0", "GRU[layer]/gru_0"])
@torch.no_grad()
def test_code_that_is_compiled_in_pieces_keeps_its_hooks(site: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 3)
    model = wrap(around_recurrent().eval(), x)
    before = model(x)
    hook(model, PostSite(f"Function/{site}"))
    expected = model(x)
    assert not torch.equal(expected, before)
    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        assert torch.equal(torch.compile(copy.deepcopy(model), backend=backend)(x), expected)


def test_a_part_that_has_to_be_compiled_whole_is_refused(x: torch.Tensor) -> None:
    model = wrap(Shared().eval(), x)
    hook(model, PostSite("Shared/Function[part]/ReLU[act]/relu_1"))
    torch._dynamo.reset()
    model.part.compile(backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="compiled by itself"):  # the compiler wraps it in its own
        model(x)


def attributes() -> Applied:
    """Reads attributes that compute: as a mode sees them, each time another object."""
    return Applied(lambda x: torch.fft.fft(x.T).real)


def test_a_hook_at_an_attribute_is_called() -> None:
    x = torch.linspace(-1, 1, 8).view(2, 4)
    model = wrap(attributes(), x)
    hooks = hook(model, PostSite("Applied/T_0"), PostSite("Applied/real_0"), kind=Count)
    model(x)
    assert [one.calls for one in hooks] == [1, 1]


@pytest.mark.parametrize("site", ["T_0", "real_0"])
def test_a_hook_at_an_attribute_is_refused_by_the_compiler_and_not_forgotten(site: str) -> None:
    """`real` is a function, too, whose calls are reported: of these it may have none."""
    x = torch.linspace(-1, 1, 8).view(2, 4)
    model = wrap(attributes(), x)
    hook(model, PostSite(f"Applied/{site}"))
    exported = torch.export.export(model, (x,), strict=False).module()
    assert torch.equal(exported(x), model(x))
    assert not torch.equal(model(x), attributes()(x))
    with pytest.raises(Exception, match="does not report"):  # the compiler wraps it in its own
        torch.compile(model, fullgraph=True, backend="eager")(x)


def unlisted() -> Applied:
    """Calls a function that torch reports and does not list as overridable."""
    return Applied(lambda x: torch._softmax(x, 1, False) + 0)


def test_a_function_that_torch_does_not_list_is_hooked() -> None:
    x = torch.linspace(-1, 1, 8).view(2, 4)
    model = wrap(unlisted(), x)
    raw = unlisted()(x)
    hook(model, PostSite("Applied/_softmax_0"))
    assert torch.equal(model(x), raw * 2)


class Loop(nn.Module):
    """Calls tanh as often as there are rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sum(0)
        for row in x:
            y = torch.tanh(y + row)
        return y


@pytest.mark.parametrize("function", [F.hardswish, F.hardsigmoid, F.silu, F.relu6])
def test_an_activation_called_as_a_function_is_hooked(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    x = torch.randn(2, 3)
    model = wrap(Applied(function), x)
    hook(model, PostSite(model.nncf.graph.addresses[0]))
    assert torch.equal(model(x), 2 * function(x))


def test_a_call_met_later_is_reported_once() -> None:
    model = wrap(Loop(), torch.ones(2, 3))
    hook(model, PostSite("Loop/tanh_0"))
    model(torch.ones(2, 3))  # without a warning, which would be an error
    with pytest.warns(UserWarning, match="calls tanh more often than the 2 times") as caught:
        model(torch.ones(4, 3))
    assert len(caught) == 1
    model(torch.ones(5, 3))


def test_fewer_calls_than_traced_are_reported_once() -> None:
    model = wrap(Loop(), torch.ones(3, 3))
    hook(model, PostSite("Loop/tanh_1"))
    with pytest.warns(UserWarning, match="calls tanh less often than the 3 times") as caught:
        model(torch.ones(2, 3))
    assert len(caught) == 1
    model(torch.ones(1, 3))


def test_fewer_calls_are_as_traced_if_some_trace_had_them() -> None:
    model = wrap(Loop(), torch.ones(3, 3), further_inputs=[torch.ones(2, 3)])
    hook(model, PostSite("Loop/tanh_1"))
    model(torch.ones(2, 3))  # without a warning, which would be an error


class Biased(nn.Module):
    """Adds a bias, if one is given."""

    def forward(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is not None:
            x = x + bias
        return x * 1


class AddsTwice(nn.Module):
    """Calls a part twice, which adds both times, or the second time only."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Biased()

    def forward(self, x: torch.Tensor, is_first: bool = True) -> torch.Tensor:
        x = self.part(x, x if is_first else None)
        return self.part(x, 10 * x)  # type: ignore[no-any-return]  # of a module


def test_a_call_that_a_part_leaves_out_does_not_move_a_hook_to_the_next_call_of_the_part() -> None:
    x = torch.ones(2)
    model = wrap(AddsTwice(), x)
    hook(model, PostSite("AddsTwice/Biased[part]/__add___0"))
    assert model(x).tolist() == [44, 44]  # (1 + 1) * 2 * 11
    assert model(x, is_first=False).tolist() == [11, 11]
    torch._dynamo.reset()
    with pytest.raises(HookError, match="part calls __add__ on floats 1 times, and 2 times when"):
        torch.compile(model, backend="eager")(x, is_first=False)


def test_a_compiled_forward_that_leaves_out_a_call_is_refused_behind_a_graph_break() -> None:
    class AddsOnce(nn.Module):
        def forward(self, x: torch.Tensor, is_first: bool = True) -> torch.Tensor:
            if is_first:
                x = x + x
            return x + 10

    x = torch.ones(2)
    model = wrap(AddsOnce(), x)
    hook(model, PostSite("AddsOnce/__add___0"))
    assert model(x, is_first=False).tolist() == [11, 11]
    torch._dynamo.reset()
    with pytest.raises(HookError, match="calls __add__ on floats 1 times, and 2 times when"):
        torch.compile(model, backend="eager")(x, is_first=False)


def test_calls_that_a_module_makes_only_in_training_come_after_the_hook() -> None:
    class AddsInTraining(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + x
            return x + 10 if self.training else x

    model = wrap(nn.Sequential(AddsInTraining()), torch.ones(2))
    hook(model, PostSite("Sequential/AddsInTraining[0]/__add___0"))
    assert model.eval()(torch.ones(2)).tolist() == [4, 4]
    assert model.train()(torch.ones(2)).tolist() == [14, 14]


def test_a_compiled_forward_that_calls_more_in_training_is_refused() -> None:
    class AddsInTraining(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = (x + x).relu()
            return x + 10 if self.training else x

    model = wrap(AddsInTraining(), torch.ones(2))
    hook(model, PostSite("AddsInTraining/__add___0"))
    compiled = torch.compile(model, backend="eager")
    model.eval()
    assert compiled(torch.ones(2)).tolist() == [4, 4]
    model.train()
    with pytest.raises(HookError, match="call the same always, in training too"):
        compiled(torch.ones(2))


def test_calls_of_a_part_that_differ_between_traces_keep_their_numbers() -> None:
    x = torch.ones(2)
    model = wrap(AddsTwice(), x, further_inputs=[(x, False)])
    hook(model, PostSite("AddsTwice/Biased[part]/__add___1"))
    assert model(x).tolist() == [44, 44]
    assert model(x, is_first=False).tolist() == [22, 22]


class Recurring(nn.Module):
    """Calls one layer as often as there are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sum(0)
        for row in x:
            y = self.act(y + row)
        return y


@pytest.mark.parametrize(("rows", "how"), [(2, "less"), (4, "more")])
def test_a_part_that_is_called_another_number_of_times_is_reported_once(
    rows: int, how: str
) -> None:
    model = wrap(Recurring(), torch.ones(3, 3))
    hook(model, PostSite("Recurring/ReLU[act]/relu_1"))
    model(torch.ones(3, 3))  # without a warning, which would be an error
    message = f"^act is called {how} often than the 3 times it was while traced"
    with pytest.warns(UserWarning, match=message) as caught:
        model(torch.ones(rows, 3))
    assert len(caught) == 1
    model(torch.ones(rows, 3))


def test_a_part_may_be_called_as_often_as_in_any_trace() -> None:
    model = wrap(Recurring(), torch.ones(3, 3), further_inputs=[torch.ones(2, 3)])
    hook(model, PostSite("Recurring/ReLU[act]/relu_1"))
    model(torch.ones(2, 3))  # without a warning, which would be an error


class Cached(nn.Module):
    """Fills a table in its first forward, and multiplies where exports alone pass."""

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.table:
            self.table[len(x)] = torch.arange(len(x)).float()[:, None] * 2
        if torch.compiler.is_exporting():
            x = x * torch.ones(len(x), 1)
        return torch.tanh(x + self.table[len(x)]) * 3


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_hook_stays_at_its_call_where_a_cache_is_full_or_new(is_warm: bool) -> None:
    x = torch.ones(2, 3)
    model = Cached()
    if is_warm:
        model(x)
    wrap(model, x)
    last = model.nncf.graph.addresses[-1]
    hook(model, PostSite(last))
    for size in (2, 2, 4, 4, 2):  # without a warning, which would be an error
        expected = 6 * torch.tanh(1 + 2 * torch.arange(size).float()[:, None].expand(-1, 3))
        assert torch.equal(model(torch.ones(size, 3)), expected)


def test_a_hook_stays_at_its_call_where_an_export_makes_more() -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    model = wrap(Cached(), x)
    hook(model, PostSite("Cached/__mul___1"))
    assert torch.equal(model(x), 2 * Cached()(x))
    program = torch.export.export(model, (x,)).module()
    assert torch.equal(program(x), model(x))


def on_two_lines(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return `function`, called on a line of its own while exported, as for a cache."""

    def wrapper(*args: object, **kwargs: object) -> torch.Tensor:
        if torch.compiler.is_exporting():
            return function(*args, **kwargs)
        return function(*args, **kwargs)

    return wrapper


@on_two_lines
def shifted(x: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * 3) + 1


def test_a_hook_in_a_decorated_function_stays_where_an_export_takes_another_line() -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    model = wrap(Function(lambda _, x: shifted(x)), x)
    hook(model, PostSite("Function/tanh_0"))
    assert torch.equal(model(x), 2 * torch.tanh(x * 3) + 1)
    assert torch.equal(torch.export.export(model, (x,)).module()(x), model(x))


class Given(nn.Module):
    """Calls a builtin function that it was given, by an instruction that Python specializes."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = operator.mul

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.scale(x, 2.0)
        return x + 1


def test_a_hook_stays_at_a_call_that_is_made_often() -> None:
    x = torch.ones(2, 3)
    model = wrap(Given(), x)
    hook(model, PostSite("Given/__mul___0"))
    for _ in range(100):
        assert torch.equal(model(x), torch.full((2, 3), 5.0))


def alternating() -> Function:
    """Calls one function of a part, then another."""
    return Function(lambda m, x: m.part(m.part(x), turned=True), part=Either())


class Either(nn.Module):
    def forward(self, x: torch.Tensor, turned: bool = False) -> torch.Tensor:
        return torch.tanh(x) if turned else torch.relu(x)


def test_a_hook_stands_at_the_second_call_of_a_part_that_calls_another_function_there() -> None:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    model = wrap(alternating(), x)
    hook(model, PostSite("Function/Either[part]/tanh_0"))
    assert torch.equal(model(x), 2 * torch.tanh(torch.relu(x)))


class Inner(nn.Module):
    """Says which function modes are on, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []
        self.fails = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(_get_current_function_mode_stack()))
        if self.fails:
            raise ValueError
        return F.relu(x)


def outer() -> Function:
    """Calls relu before and after a child that calls it too."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(x)
        try:
            x = m.inner(x)
        except ValueError:
            x = -x
        return F.relu(x) - 1

    return Function(forward, inner=Inner())


def test_a_child_pays_nothing_for_hooks_of_its_caller() -> None:
    model = wrap(outer(), torch.ones(2))
    hook(model, PostSite("Function/relu_1"), PostSite("Function/Inner[inner]/relu_0"))
    inner = model.inner
    inner.seen.clear()
    assert model(torch.ones(2)).tolist() == [3, 3]  # doubled twice, less one
    assert inner.seen == [0]  # the only call of its module needs no mode, and gets none
    inner.fails = True  # the caller's hooks are back, whatever happens to the child
    assert model(-torch.ones(2)).tolist() == [-1, -1]
    inner.fails = False
    assert model(torch.ones(2)).tolist() == [3, 3]


def learned() -> Function:
    """Multiplies by a parameter."""
    return Function(lambda m, x: x * m.factor, factor=nn.Parameter(torch.tensor(2.0)))


def test_a_forward_may_ask_a_gradient_of_what_a_hook_has_given_one() -> None:
    """Encoders of speech do, for torch.utils.checkpoint; behind a hook it is no leaf any more."""

    def encoder_net(*, asks: bool) -> Function:
        def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
            x = x[:, None]
            x.requires_grad = asks
            return m.layer(x)

        return Function(forward, layer=nn.Conv1d(1, 2, 3))

    x = torch.arange(8.0).view(2, 4)
    model = wrap(encoder_net(asks=True), x)
    hook(model, PostSite("Function/__getitem___0"), kind=learned)
    plain = encoder_net(asks=False)
    plain.load_state_dict({key: model.state_dict()[key] for key in ("layer.weight", "layer.bias")})
    found = model(x)
    assert torch.equal(found, plain(2 * x))
    found.sum().backward()
    assert model.layer.weight.grad is not None
    refused = wrap(encoder_net(asks=False), x)
    hook(refused, PostSite("Function/__getitem___0"), kind=learned)
    with pytest.raises(RuntimeError, match="leaf variables"):
        refused(x)


@pytest.mark.parametrize("call", [torch.mm, torch.sparse.mm])
def test_functions_that_have_other_names_are_hooked(call: Callable[..., torch.Tensor]) -> None:
    """`torch.mm == torch.dsmm`; `torch.sparse.mm` is none of the functions that torch lists."""
    module = Applied(lambda x: call(torch.eye(3).to_sparse(), x))
    x = torch.randn(3, 2)
    model = wrap(module, x)
    (address,) = (one for one in model.nncf.graph.addresses if "mm" in one)
    hook(model, PostSite(address))
    assert torch.equal(model(x), 2 * x)


class Repeating(nn.Module):
    """Calls one activation three times."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x) + self.act(x - 1) - self.act(x + 1)


def repeating(calls: int = 1) -> NNCFNetwork:
    """Return a model with other hooks at each call of the activation."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        for _ in range(calls):
            x = m.part(x)
        return x

    model = wrap(Function(forward, part=Repeating()), torch.ones(2, 3))
    scope = "Function/Repeating[part]/ReLU[act]"
    for number in range(3 * calls):
        times = partial(operator.mul, number + 1)
        hook(model, PostSite(f"{scope}/relu_{number}"), kind=partial(Applied, times))
    return model


X = torch.tensor([[-2.0, 0.5, 3.0]])
EXPECTED = [[0.0, 0.5 - 3 * 1.5, 3.0 + 2 * 2.0 - 3 * 4.0]]
"""By hand: hooks multiply the first activation by 1, the second by 2 and the third by 3."""


@pytest.mark.parametrize("how", ["called", "copied", "exported", "compiled", "repeated"])
def test_a_part_that_runs_on_its_own_knows_which_call_is_which(how: str) -> None:
    model = repeating()
    part = model.part
    assert model(X).tolist() == EXPECTED
    if how == "copied":
        part = copy.deepcopy(part)
    elif how == "exported":
        part = torch.export.export(part, (X,)).module()
    elif how == "compiled":
        torch._dynamo.reset()
        part = torch.compile(part, fullgraph=True, backend="eager")
    elif how == "repeated":
        part(X)
    assert part(X).tolist() == EXPECTED
    model.nncf.remove("test")
    if how == "called":
        assert not any(name.startswith("_nncf") for name in vars(part))


def test_a_part_that_the_model_runs_twice_warns_that_it_begins_with_the_first() -> None:
    model = repeating(2)
    with pytest.warns(UserWarning, match="a part on its own has the hooks of its first run"):
        assert model.part(X).tolist() == EXPECTED
    with pytest.raises(HookError, match="take the model, not a part that it runs repeatedly"):
        torch.export.export(model.part, (X,))
