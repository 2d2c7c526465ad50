"""L-C in the user's own loop is the L-C of one call, and its config is checked."""

import copy
import itertools
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import nncfx
from nncfx.errors import ArgumentError, CompressionError, ConfigError
from nncfx.lc import LC, LCController, RecoveryData
from small_models import Function

STEPS = 4
BATCHES = 12
MU = {"mu_init": 0.05, "mu_multiplier": 1.5}


def applied(model: nn.Module, **item: Any) -> tuple[LCController, nn.Module]:  # noqa: ANN401 (keys of a config)
    config = {"compression": {"algorithm": "lc", **item}}
    controller, wrapped = nncfx.create_compressed_model(model, config, torch.zeros(2, 64))
    return controller, wrapped


def test_a_loop_of_the_users_own_takes_the_steps_of_one_call(
    dense: nn.Module, digits: RecoveryData
) -> None:
    recipe = LC(
        steps=STEPS,
        lr=0.1,
        mb_iterations_per_l=BATCHES,
        optimizer_factory=lambda parameters, lr: torch.optim.SGD(parameters, lr=lr),
        **MU,
    )
    called = recipe.recover(copy.deepcopy(dense), nncfx.schemes.Prune(), 0.8, digits)

    controller, model = applied(dense, params={"sparsity_target": 0.8, **MU})
    torch.manual_seed(recipe.seed)
    distances = []
    for _ in range(STEPS):
        controller.scheduler.epoch_step()
        distances.append(controller.distance())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.train()
        for inputs, targets in itertools.islice(digits.train, BATCHES):
            controller.scheduler.step()
            loss = F.cross_entropy(model(inputs), targets) + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert distances == pytest.approx([one.distance for one in called.history], rel=1e-4)
    assert distances[-1] < distances[1]


def test_weights_alone_can_be_penalized(dense: nn.Module) -> None:
    item = {"schemes": {"name": "Quantize", "dtype": "bfloat16"}}
    controller, model = applied(dense, **item, params={**MU, "penalize": "weights"})
    for _ in range(2):
        controller.scheduler.epoch_step()
    controller.loss().backward()
    drawn = {name for name, one in model.named_parameters() if one.grad is not None}
    assert drawn == {"0.weight", "3.weight", "5.weight"}
    # biases are compressed all the same
    bias = controller.strip()[0].bias
    assert torch.equal(bias, dense[0].bias.bfloat16().float())


def test_in_evaluation_mode_the_compressed_weights_count(dense: nn.Module) -> None:
    inputs = torch.rand(3, 64)
    controller, model = applied(dense, schemes={"name": "Quantize", "dtype": "bfloat16"})
    controller.level = 0.5
    expected = copy.deepcopy(nncfx.unwrap(copy.deepcopy(model)))
    with torch.no_grad():
        for module in expected:
            if isinstance(module, nn.Linear):
                for parameter in module.parameters():
                    parameter.copy_(parameter.bfloat16().float())
    assert torch.equal(model.eval()(inputs), expected.eval()(inputs))


def test_stripping_compresses_the_weights_as_they_are_now(dense: nn.Module) -> None:
    controller, model = applied(dense, params={"sparsity_target": 0.5})
    controller.scheduler.epoch_step()
    raw = dict(model.named_parameters())["3.weight"]
    with torch.no_grad():
        raw.mul_(-1)
    kept = controller.strip().get_parameter("3.weight")
    assert torch.equal(kept[kept != 0], raw[kept != 0])
    assert int((kept == 0).sum()) > 0


def test_evaluation_sees_the_weights_as_they_are_now_and_leaves_training_alone(
    dense: nn.Module,
) -> None:
    controller, model = applied(dense, params={"sparsity_target": 0.5, **MU})
    controller.scheduler.epoch_step()
    with torch.no_grad():
        dict(model.named_parameters())["3.weight"].mul_(-1)
    drawn, inputs = controller.loss().detach(), torch.rand(3, 64)
    before = model.eval()(inputs)
    with controller.evaluating():
        now = model(inputs)
    assert torch.equal(controller.loss().detach(), drawn)
    expected = controller.strip()(inputs)
    assert torch.equal(now, expected)
    assert not torch.equal(before, expected)


def test_several_epochs_may_make_one_l_step(dense: nn.Module) -> None:
    controller, _ = applied(dense, params={"epochs_per_step": 2, **MU})
    seen = []
    for _ in range(5):
        controller.scheduler.epoch_step()
        seen.append(controller.mu)
    assert seen == pytest.approx([0.05, 0.05, 0.075, 0.075, 0.1125])


def test_layers_out_of_scope_are_left_alone(dense: nn.Module) -> None:
    controller, _ = applied(
        dense, ignored_scopes=["{re}.*Linear\\[5\\].*"], params={"sparsity_target": 0.9}
    )
    controller.scheduler.epoch_step()
    assert sorted(controller.hooks) == ["0.weight", "3.weight"]
    assert (controller.strip().get_parameter("5.weight") != 0).all()


def test_frozen_weights_are_compressed_and_not_drawn(dense: nn.Module) -> None:
    for parameter in dense.parameters():
        parameter.requires_grad_(False)
    controller, _ = applied(dense, params={"sparsity_target": 0.5})
    controller.scheduler.epoch_step()
    assert controller.loss() == 0
    assert (controller.strip().get_parameter("0.weight") == 0).any()


def test_structured_schemes_remove_channels_that_thinning_takes_out(dense: nn.Module) -> None:
    scheme = {"name": "NeuronPrune", "align": 4}
    controller, model = applied(dense, schemes=scheme, params={"sparsity_target": 0.5})
    controller.scheduler.epoch_step()
    thinned = nncfx.thin(model.eval(), torch.rand(2, 64))
    assert sum(p.numel() for p in thinned.model.parameters()) < 5000
    assert thinned.max_error < 1e-5


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"schemes": {"name": "Prune", "bits": 4}}, "bits: 'Prune' does not know it"),
        ({"schemes": {"name": "Prun"}}, "Did you mean 'Prune'"),
        ({"schemes": {"name": "Cluster", "bits": 0}}, "bits: 0 is out of range"),
        ({"params": {"sparsity_level_setting_mode": "local"}}, "rank all weights together"),
        ({"params": {"update_per_optimizer_step": True}}, "compresses between epochs"),
    ],
)
def test_a_fault_of_the_config_names_its_place(item: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        nncfx.NNCFConfig.from_dict({"compression": {"algorithm": "lc", **item}})


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ({"name": "NeuronPrune", "criteria": "l3norm"}, "l3norm"),
        ({"name": "Cluster", "bits": 9}, "bits is 9"),
    ],
)
def test_what_a_scheme_refuses_is_refused(
    dense: nn.Module, scheme: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        applied(dense, schemes=scheme)


def test_a_model_without_layers_to_prune_is_refused_and_left_alone() -> None:
    model = nn.Sequential(nn.Embedding(4, 4))
    with pytest.raises(CompressionError):
        nncfx.create_compressed_model(
            model, {"compression": {"algorithm": "lc"}}, torch.zeros(2, dtype=torch.long)
        )
    assert type(model) is nn.Sequential


def spectrum() -> Function:
    """A complex layer before a real one."""
    return Function(
        lambda m, inputs: m.head(m.waves(inputs.to(torch.cfloat)).abs()),
        waves=nn.Linear(64, 6, dtype=torch.cfloat),
        head=nn.Linear(6, 2),
    )


def test_complex_weights_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    controller, model = applied(spectrum(), params={"sparsity_target": 0.5, **MU})
    assert set(controller.hooks) == {"head.weight"}
    assert "lc leaves modules with complex weights alone: 'waves'." in caplog.text
    controller.scheduler.epoch_step()
    (model.train()(torch.randn(2, 64)).sum() + controller.loss()).backward()
    with pytest.raises(CompressionError, match="constrain none that is real"):
        applied(spectrum(), ignored_scopes=["{re}head"])


def test_the_refusal_names_the_kinds_of_layers_that_a_scheme_may_take() -> None:
    model = nn.Sequential(nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 2, 3), nn.ReLU())
    with pytest.raises(
        CompressionError, match=r"layers here are \['conv1d'\]; .* Give \"layers\""
    ):
        applied(model)
    controller, _ = applied(model, schemes={"name": "Prune", "layers": ["conv1d"]})
    assert set(controller.hooks) == {"1.weight"}
