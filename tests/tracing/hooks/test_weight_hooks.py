"""Promises of nncfx.tracing.hooks.weight_hooks."""

import copy
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import nn

import nncfx
from nncfx.errors import GraphError, HookError
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, WeightSite
from small_models import Applied, Function, inputs, make


def hook(model: NNCFNetwork, site: WeightSite, module: nn.Module) -> None:
    model.nncf.register([Insertion(site, module, 0, "test")])
    model.nncf.commit()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_reads_its_weights_hooked(
    kind: type[nn.RNNBase], halve: nn.Module
) -> None:
    torch.manual_seed(0)
    model, x = kind(4, 3), torch.randn(5, 2, 4)
    expected = copy.deepcopy(model)
    with torch.no_grad():
        expected.weight_hh_l0.mul_(0.5)
    hook(wrap(model, x), WeightSite("", "weight_hh_l0"), halve)
    assert torch.equal(model(x)[0], expected(x)[0])


def test_a_recurrent_layer_keeps_nothing_that_a_hook_has_made(halve: nn.Module) -> None:
    """It would hold the graph of the last step."""
    model, x = nn.LSTM(4, 3), torch.randn(5, 2, 4)
    hook(wrap(model, x), WeightSite("", "weight_hh_l0"), halve)
    model(x)
    kept = {id(one) for one in vars(model)["_flat_weights"]}
    assert kept == {id(one) for one in model._parameters.values()}


def test_a_recurrent_layer_loads_weights_while_hooked(halve: nn.Module) -> None:
    model, other, x = nn.LSTM(4, 3), nn.LSTM(4, 3), torch.randn(5, 2, 4)
    hook(wrap(model, x), WeightSite("", "weight_hh_l0"), halve)
    model.load_state_dict(copy.deepcopy(other.state_dict()), strict=False, assign=True)
    with torch.no_grad():
        other.weight_hh_l0.mul_(0.5)
    assert torch.equal(model(x)[0], other(x)[0])


def test_a_shared_weight_has_one_site_per_reader(halve: nn.Module) -> None:
    embedding, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = embedding.weight
    x = torch.tensor([1, 2])
    model = wrap(nn.Sequential(embedding, head), x)
    raw, features = model(x), embedding(x)
    hook(model, WeightSite("1", "weight"), halve)
    assert torch.equal(embedding(x), features)
    assert torch.equal(model(x), raw * 0.5)


def test_a_hook_at_each_name_of_one_module_is_applied_once(halve: nn.Module) -> None:
    layer = nn.Linear(3, 3, bias=False)
    x = torch.ones(1, 3)
    model = wrap(nn.Sequential(layer, nn.Identity(), layer), x)
    raw = model(x)
    sites = [WeightSite("0", "weight"), WeightSite("2", "weight")]
    model.nncf.register([Insertion(site, halve, 0, "test") for site in sites])
    model.nncf.commit()
    assert torch.allclose(model(x), raw * 0.25)  # two calls, each with half of the weight


def test_a_parameter_of_the_root_can_be_hooked(halve: nn.Module) -> None:
    model = wrap(make("Mixed"), inputs("Mixed"))
    before = model.scale.clone()
    hook(model, WeightSite("", "scale"), halve)
    assert torch.equal(model.nncf.weight("scale"), before * 0.5)
    assert torch.equal(model.state_dict()["scale"], before)


def test_a_buffer_can_be_hooked(halve: nn.Module) -> None:
    norm, x = nn.BatchNorm1d(2).eval(), torch.ones(1, 2)
    halve.requires_grad_(requires_grad=False)  # torch gives running_var no gradient
    hook(wrap(norm, x), WeightSite("", "running_var"), halve)
    assert torch.allclose(norm(x), torch.tensor(2.0).sqrt() * x, atol=1e-4)  # eps is 1e-5


def test_gradients_reach_weight_and_hook(halve: nn.Module) -> None:
    layer, x = nn.Linear(2, 1, bias=False), torch.ones(1, 2)
    hook(wrap(layer, x), WeightSite("", "weight"), halve)
    layer(x).sum().backward()
    parameter = dict(layer.named_parameters())["weight"]
    assert torch.equal(parameter.grad, torch.full((1, 2), 0.5))
    assert torch.allclose(halve.factor.grad, parameter.sum())


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda x: x[:1], r"shape \(1, 4\) for shape \(3, 4\)"),
        (lambda x: x.double(), "torch.float64 for torch.float32"),
        (lambda x: x.to("meta"), "a tensor on meta for one on cpu"),
        (lambda _: None, "a NoneType"),
    ],
)
def test_a_hook_that_returns_something_else_is_named_with_its_site(
    fault: Callable[[torch.Tensor], object], message: str
) -> None:
    model, x = nn.Sequential(nn.Linear(4, 3)), torch.zeros(1, 4)
    hook(wrap(model, x), WeightSite("0", "weight"), Applied(fault))
    with pytest.raises(HookError, match=rf"Applied at '0.weight' returned {message}"):
        model(x)


def test_on_meta_where_there_is_no_autocast_a_changed_dtype_is_told_as_well() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3)).to("meta"), torch.zeros(1, 4, device="meta")
    hook(wrap(model, x), WeightSite("0", "weight"), Applied(lambda one: one.double()))
    with pytest.raises(HookError, match=r"returned torch.float64 for torch.float32"):
        model(x)


def test_autocast_may_change_the_dtype() -> None:
    model, x = nn.Sequential(nn.Linear(4, 3)), torch.ones(1, 4)
    hook(wrap(model, x), WeightSite("0", "weight"), Applied(lambda w: w @ torch.eye(4)))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16


class Twice(nn.Module):
    """One layer under two names, and a hook reaches it by either."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(4, 4))
        self.other = nn.ModuleList([self.one[0]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.other[0](self.one(x))


@pytest.mark.parametrize("name", ["one.0", "other.0"])
def test_a_layer_with_two_names_is_hooked_under_either(name: str, halve: nn.Module) -> None:
    x = torch.linspace(-1, 1, 8).view(2, 4)
    model, expected = Twice(), Twice()
    expected.load_state_dict(model.state_dict())
    with torch.no_grad():
        expected.one[0].weight.mul_(0.5)  # type: ignore[operator]  # a Linear's
    hook(wrap(model, x), WeightSite(name, "weight"), halve)
    assert torch.equal(model(x), expected(x))


def test_hooks_on_one_layer_under_two_names_all_apply(
    halve: nn.Module, add_one: nn.Module
) -> None:
    x = torch.linspace(-1, 1, 8).view(2, 4)
    model = wrap(Twice(), x)
    model.nncf.register(
        [
            Insertion(WeightSite("one.0", "weight"), halve, 0, "test"),
            Insertion(WeightSite("other.0", "weight"), add_one, 1, "test"),
            Insertion(WeightSite("other.0", "bias"), halve, 0, "test"),
        ]
    )
    stored = model.one[0].weight.clone(), model.one[0].bias.clone()
    model.nncf.commit()
    assert torch.equal(model.nncf.weight("one.0.weight"), stored[0] * 0.5 + 1)
    assert torch.equal(model.nncf.weight("other.0.bias"), stored[1] * 0.5)


def test_get_parameter_gives_what_is_stored(halve: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    weight = model[0].weight
    hook(wrap(model, torch.ones(1, 3)), WeightSite("0", "weight"), halve)
    assert model.get_parameter("0.weight") is model[0].get_parameter("weight") is weight
    with pytest.raises(AttributeError, match="wait"):
        model.get_parameter("0.wait")


class _Folding(nn.Module):
    """Two branches that each forward in eval mode folds into one weight, as those of SPAN."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.wide, self.narrow, self.folded = (nn.Linear(3, 3, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.training:
            return self.wide(x) + self.narrow(x)
        self.folded.weight.data = self.wide.weight.data + self.narrow.weight.data
        return self.folded(x)


def test_a_hook_on_a_weight_whose_data_the_forward_sets_is_refused(halve: nn.Module) -> None:
    model = wrap(_Folding().eval(), torch.ones(1, 3))
    with pytest.raises(GraphError, match=r"sets the data of 'folded\.weight'.* ignored_scopes"):
        hook(model, WeightSite("folded", "weight"), halve)
    assert model.nncf.folded_weights == {"folded.weight"}


class _SetsUp(nn.Module):
    """Scales its weight in its first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3, bias=False)
        self.is_set_up = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_set_up:
            self.layer.weight.data = self.layer.weight.data / 2
            self.is_set_up = True
        return self.layer(x)  # type: ignore[no-any-return]  # of a module


def test_a_model_that_sets_a_weight_in_its_first_forward_takes_hooks_once_it_has_run(
    halve: nn.Module,
) -> None:
    x, ready, site = torch.ones(1, 3), _SetsUp(), WeightSite("layer", "weight")
    model = wrap(_SetsUp(), x)
    with pytest.raises(GraphError, match="run the model once before it is wrapped or loaded"):
        hook(model, site, halve)
    before = ready(x)
    hook(wrap(ready, x), site, halve)
    assert torch.equal(ready(x), before / 2)


def test_compressed_branches_are_folded_as_they_are() -> None:
    torch.manual_seed(0)
    model, x = _Folding().eval(), torch.randn(5, 3)
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    controller, sparse = nncfx.create_compressed_model(model, config, x)
    evaluated = sparse.eval()(x)
    torch.testing.assert_close(evaluated, copy.deepcopy(sparse).train()(x))
    assert torch.equal(controller.strip().eval()(x), evaluated)


def test_a_quantized_folded_weight_follows_its_branches(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, x = _Folding().eval(), torch.randn(64, 3)
    expected = model(x)
    quantized = nncfx.quantize(model, [x])
    assert "did not read" not in caplog.text
    assert (quantized(x) - expected).norm() < 0.05 * expected.norm()
    with torch.no_grad():
        quantized.wide.weight.zero_()
        quantized.narrow.weight.zero_()
    assert not quantized(x).any()


_TAKEN: dict[str, Callable[[nn.Module], torch.Tensor]] = {
    "named_parameters": lambda layer: dict(layer.named_parameters())["weight"],
    "parameters": lambda layer: next(layer.parameters()),
    "_parameters": lambda layer: cast("torch.Tensor", layer._parameters["weight"]),
    "get_parameter": lambda layer: layer.get_parameter("weight"),
}


def taking(way: str) -> Function:
    """The second layer's weight is taken out of a table, as meta-learners do."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        weight = _TAKEN[way](m.second)
        return nn.functional.linear(m.first(x), weight, m.second.bias)

    return Function(forward, first=nn.Linear(3, 4), second=nn.Linear(4, 2))


@pytest.mark.parametrize("way", _TAKEN)
def test_a_hook_on_a_weight_that_is_taken_out_of_a_table_is_refused(
    way: str, halve: nn.Module
) -> None:
    model = taking(way)
    table = model.second._parameters
    wrapped = wrap(model, torch.ones(1, 3))
    assert model.second._parameters is table
    with pytest.raises(GraphError, match=r"does not read 'second\.weight' as an attribute"):
        hook(wrapped, WeightSite("second", "weight"), halve)
    hook(wrapped, WeightSite("second", "bias"), halve)
    hook(wrapped, WeightSite("first", "weight"), halve)


def test_a_layer_whose_weight_is_taken_out_of_a_table_can_be_left_out() -> None:
    model, x = taking("parameters").eval(), torch.randn(8, 3)
    config = {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}
    with pytest.raises(GraphError, match="ignored_scopes"):
        nncfx.create_compressed_model(taking("parameters"), {"compression": config}, x)
    config["ignored_scopes"] = ["Function/linear_0"]
    controller, sparse = nncfx.create_compressed_model(model, {"compression": config}, x)
    assert int((sparse.nncf.weight("first.weight") == 0).sum()) == 6
    torch.testing.assert_close(controller.strip()(x), sparse.eval()(x))


def test_a_hooked_weight_has_the_attributes_of_its_parameter(halve: nn.Module) -> None:
    class Scaled(nn.Module):
        """Such as those of muP, whose parameters know their width."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.linear.weight.width = 4.0  # type: ignore[attr-defined]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            width = self.linear.weight.width  # type: ignore[union-attr]
            return self.linear(x) / width

    model, x = Scaled(), torch.randn(5, 3)
    expected = nn.functional.linear(x, model.linear.weight * 0.5, model.linear.bias) / 4
    hook(wrap(model, x), WeightSite("linear", "weight"), halve)
    torch.testing.assert_close(model(x), expected)
