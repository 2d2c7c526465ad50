"""Movement sparsity: its formulas by hand, and what its masks do to real attention."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

import nncfx
from language_models import bert
from nncfx.algorithms.movement_sparsity.config import MovementSparsityParams
from nncfx.algorithms.movement_sparsity.controller import (
    ImportanceLoss,
    MovementSparsityController,
)
from nncfx.algorithms.movement_sparsity.mask import MovementMask, keep_highest, threshold_at
from nncfx.controllers import CompressionStage, TrainingLoopWarning
from nncfx.errors import CompressionError, ConfigError
from nncfx.tracing import ExampleInputs

PARAMS: dict[str, Any] = {
    "warmup_start_epoch": 1,
    "warmup_end_epoch": 3,
    "importance_regularization_factor": 0.4,
    "steps_per_epoch": 2,
}


class Outputs(TorchDispatchMode):
    """Collects what operations return, views aside."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Tensor] = []

    @override
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor) and not func.is_view:
            self.made.append(found)
        return found


INPUTS = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def applied(
    model: nn.Module | None = None,
    inputs: ExampleInputs = INPUTS,
    **item: Any,  # noqa: ANN401 (keys of a config)
) -> tuple[MovementSparsityController, nn.Module]:
    params = PARAMS | item.pop("params", {})
    config = {"compression": {"algorithm": "movement_sparsity", "params": params, **item}}
    controller, wrapped = nncfx.create_compressed_model(model or mlp(), config, inputs)
    return controller, wrapped


def draw_scores(controller: MovementSparsityController) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in controller.masks.values():
            one.importance.copy_(torch.rand(one.importance.shape, generator=generator))


def test_the_score_gets_the_gradient_of_the_mask_so_that_weights_moving_to_zero_lose() -> None:
    hook = MovementMask(torch.tensor([[2.0, -3.0]]), [1, 1])
    (hook(torch.tensor([[2.0, -3.0]])) * torch.tensor([[5.0, 7.0]])).sum().backward()
    # d loss / d score = d loss / d weight * weight (Sanh et al., equation 3)
    assert hook.importance.grad.flatten().tolist() == [10.0, -21.0]


def test_scores_at_the_threshold_stay() -> None:
    hook = MovementMask(torch.ones(3), [1])
    with torch.no_grad():
        hook.importance.copy_(torch.tensor([[0.9], [1.0], [1.1]]))
        hook.threshold.fill_(1.0)
    assert hook(torch.full((3,), 5.0)).tolist() == [0.0, 5.0, 5.0]


def test_a_block_shares_its_score() -> None:
    hook = MovementMask(torch.ones(4, 6), [2, 3])
    assert hook.importance.numel() == 4
    with torch.no_grad():
        hook.importance.view(2, 2)[0, 1] = -1
        hook.threshold.fill_(0)
    expected = torch.ones(4, 6)
    expected[:2, 3:] = 0
    assert torch.equal(hook(torch.ones(4, 6)), expected)


def test_a_block_sums_the_gradients_of_its_entries_and_masked_weights_have_none() -> None:
    weight = torch.arange(1.0, 9.0).view(2, 4).requires_grad_()
    hook = MovementMask(weight, [2, 2])
    with torch.no_grad():
        hook.importance.view(2)[0] = -1
        hook.threshold.fill_(0)
    hook(weight).backward(torch.full((2, 4), 10.0))
    # ten times the sum of 1, 2, 5, 6, and of 3, 4, 7, 8
    assert hook.importance.grad.flatten().tolist() == [140.0, 220.0]
    assert weight.grad.tolist() == [[0.0, 0.0, 10.0, 10.0]] * 2


def test_a_step_of_training_makes_few_tensors_of_the_weights_size() -> None:
    weight = torch.randn(64, 64, requires_grad=True)
    hook = MovementMask(weight, [1, 1])
    with Outputs() as outputs:
        hook(weight).sum().backward()
    # mask, product, and gradients of weight and scores; an expanded number has no such memory
    floats = {
        one.untyped_storage().data_ptr()
        for one in outputs.made
        if one.is_floating_point() and one.untyped_storage().nbytes() >= 4 * 64 * 64
    }
    assert len(floats) <= 6


def test_the_level_is_counted_without_floats_of_the_weights_size() -> None:
    controller, _ = applied()
    draw_scores(controller)
    for one in controller.masks.values():
        one.threshold.fill_(0.5)
        one.mask.view(-1)[::3] = 0
    zeros = sum(int((one.effective() == 0).sum()) for one in controller.masks.values())
    with Outputs() as outputs:
        level = controller.level
    assert level == zeros / (6 * 8 + 8 * 3)
    assert not any(one.is_floating_point() and one.numel() >= 24 for one in outputs.made)


def test_the_first_threshold_masks_a_thousandth_counting_blocks_by_their_size() -> None:
    # 3000 entries: 1000 single ones, and 2 blocks of 1000; the 4th smallest of all is 3.0
    singles, blocks = torch.arange(1000.0), torch.tensor([0.5, 5000.0])
    assert threshold_at(0.001, [(singles, 1)]) == 1.0
    assert threshold_at(0.001, [(singles, 1), (blocks, 1000)]) == 0.5


@pytest.mark.parametrize("share", [1, 7])
@pytest.mark.parametrize("level", [0.0, 0.3, 0.8, 0.999])
def test_the_threshold_is_the_first_score_in_order_that_is_above_the_level(
    level: float, share: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 50, (2, 501), generator=generator).float()
    expected = scores.flatten().tolist()
    expected.sort()
    gone = int(len(expected) * share * level) // share
    found = threshold_at(level, [(scores[0], share), (scores[1], share)])
    assert found == expected[gone]


def test_a_level_that_is_asked_for_rises_as_a_cubic_and_is_met_exactly() -> None:
    params = {"sparsity_target": 0.75, "enable_structured_masking": False}
    controller, _ = applied(params=params)
    draw_scores(controller)
    masked, targets = [], []
    for _epoch in range(4):
        controller.scheduler.epoch_step()
        for _step in range(2):
            controller.scheduler.step()
            targets.append(controller.target_level)
            masked.append(round(controller.level * 72))
    # 48 + 24 weights; four steps of warm-up, from epoch 1 to epoch 3: 0.75 (1 - (1 - p)^3)
    risen = [int(72 * 0.75 * (1 - (1 - share) ** 3)) for share in (0, 0.25, 0.5, 0.75)]
    assert masked == [0, 0, *risen, 54, 54]
    assert [int(72 * one) for one in targets] == [0, 0, *risen, 54, 54]
    assert controller.statistics().level == 0.75


def test_of_equal_scores_at_the_end_the_later_go_so_that_the_level_is_met() -> None:
    params = {"sparsity_target": 0.5, "enable_structured_masking": False}
    controller, model = applied(params=params)
    first, second = controller.masks["0.weight"], controller.masks["2.weight"]
    with torch.no_grad():
        # 48 + 24 weights, of which 36 go: 10 are lowest, and 30 share the next score
        first.importance.fill_(1.0)
        second.importance.fill_(2.0)
        first.importance.view(-1)[:10] = -1.0
        first.importance.view(-1)[10:40] = 0.0
    for _ in range(4):
        controller.scheduler.epoch_step()
    gone = (first.effective().flatten() == 0).nonzero().flatten().tolist()
    assert gone == [*range(10), *range(14, 40)]
    assert controller.level == 0.5
    again, _ = applied(params=params)
    again.model.load_state_dict(model.state_dict())
    again.load_state_dict(controller.state_dict())
    assert again.level == 0.5
    assert torch.equal(again.masks["0.weight"].effective(), first.effective())


def test_blocks_stay_whole_where_a_level_is_met() -> None:
    # 2 + 12 entries, of which 7 go at most: a single one and the later of two blocks of 6
    single, blocks = torch.tensor([0.0, 2.0]), torch.tensor([[1.0], [1.0]])
    stays = keep_highest(0.5, [(single, 1), (blocks, 6)])
    assert [one.tolist() for one in stays] == [[False, True], [[True], [False]]]


def test_a_level_that_whole_channels_give_back_is_told() -> None:
    controller, _ = applied(params={"sparsity_target": 0.5})  # single weights have scores
    draw_scores(controller)
    for _ in range(3):
        controller.scheduler.epoch_step()
        controller.scheduler.step()
        controller.scheduler.step()
    with pytest.warns(TrainingLoopWarning, match="at 0% of the weights instead of 50%"):
        controller.scheduler.epoch_step()
    assert controller.level == 0


def test_untrained_scores_mask_nothing_when_the_warm_up_begins_at_once() -> None:
    controller, model = applied(params={"warmup_start_epoch": 0})
    controller.scheduler.epoch_step()
    controller.scheduler.step()
    assert torch.equal(model(INPUTS), mlp()(INPUTS))


def test_the_loss_is_half_the_mean_sigmoid_times_the_block_size_and_the_factor() -> None:
    fine, rows = MovementMask(torch.ones(2, 2), [1, 1]), MovementMask(torch.ones(3, 4), [1, 4])
    with torch.no_grad():
        rows.importance.fill_(math.log(3))
    loss = ImportanceLoss([fine, rows])
    loss.factor = 0.1
    # sigmoid(0) = 1/2 and sigmoid(log 3) = 3/4: (0.5 * 0.5 * 1 + 0.5 * 0.75 * 4) / 2 * 0.1
    assert loss().item() == pytest.approx(0.0875)


def test_threshold_and_factor_rise_as_a_concave_cubic_of_the_steps() -> None:
    controller, _ = applied(params={"init_importance_threshold": -1.0})
    loss = controller.compression_loss
    seen = []
    for _ in range(4):
        controller.scheduler.epoch_step()
        for _ in range(2):
            controller.scheduler.step()
            seen.append((controller.masks["0.weight"].threshold.item(), loss.factor))
    # progress 0, 1/4, 1/2, 3/4 of the warm-up: 1 - (1 - p)^3
    risen = [0.0, 1 - 0.75**3, 1 - 0.5**3, 1 - 0.25**3]
    assert seen[:2] == [(-math.inf, 0.0)] * 2
    for (threshold, factor), share in zip(seen[2:6], risen, strict=True):
        assert threshold == pytest.approx(-1 + share)
        assert factor == pytest.approx(0.4 * share)
    assert seen[6:] == [(-math.inf, 0.0)] * 2
    assert controller.is_settled


def test_stages_are_those_of_the_warm_up() -> None:
    controller, _ = applied()
    stages = []
    for _ in range(4):
        controller.scheduler.epoch_step()
        stages.append(controller.compression_stage())
    none, part, full = CompressionStage
    assert stages == [none, part, part, full]


def test_after_the_warm_up_only_whole_channels_stay_masked() -> None:
    controller, _ = applied()
    first, second = controller.masks["0.weight"], controller.masks["2.weight"]
    with torch.no_grad():
        first.importance.view(8, 6)[[1, 2]] = -1
        first.importance.view(8, 6)[3, 0] = -1
        second.importance.view(3, 8)[:, [2, 4]] = -1
    for _ in range(4):
        controller.scheduler.epoch_step()
    # neuron 2 is dead on both sides; 1 and 4 on one only, and of 3 a single entry
    assert (first.effective() == 0).all(dim=1).nonzero().flatten().tolist() == [2]
    assert int((first.effective() == 0).sum()) == 6
    assert (second.effective() == 0).all(dim=0).nonzero().flatten().tolist() == [2]
    assert int((second.effective() == 0).sum()) == 3


def test_without_structured_masking_the_masks_stay_as_they_are() -> None:
    controller, model = applied(params={"enable_structured_masking": False})
    with torch.no_grad():
        controller.masks["0.weight"].importance.view(8, 6)[3, 0] = -1
    for _ in range(4):
        controller.scheduler.epoch_step()
    assert int((controller.masks["0.weight"].effective() == 0).sum()) == 1
    assert nncfx.strip(model).get_parameter("0.weight")[3, 0] == 0


def test_nncfs_config_for_bert_removes_heads_and_neurons_that_thinning_then_takes_out() -> None:
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 24}
    model = bert("BertForSequenceClassification", max_position_embeddings=16, **sizes)
    inputs = {"input_ids": torch.arange(8).reshape(1, 8)}
    structures = [
        {"mode": "block", "sparse_factors": [4, 4], "target_scopes": "{re}.*BertAttention.*"},
        {"mode": "per_dim", "axis": 0, "target_scopes": "{re}.*BertIntermediate.*"},
        {"mode": "per_dim", "axis": 1, "target_scopes": "{re}.*BertOutput.*"},
    ]
    ignored = ["{re}.*Embedding", "{re}.*classifier.*", "{re}.*BertPooler.*"]
    controller, wrapped = applied(
        model, inputs, sparse_structure_by_scopes=structures, ignored_scopes=ignored
    )
    layer = "bert.encoder.layer.0"
    attention = [f"{layer}.attention.self.{part}.weight" for part in ("query", "key", "value")]
    with torch.no_grad():
        for name in attention:
            controller.masks[name].importance.view(4, 4)[1] = -1
        controller.masks[f"{layer}.attention.output.dense.weight"].importance.view(4, 4)[:, 1] = -1
        controller.masks[f"{layer}.intermediate.dense.weight"].importance.view(24)[[0, 5]] = -1
        controller.masks[f"{layer}.output.dense.weight"].importance.view(24)[[0, 5, 7]] = -1
    for _ in range(4):
        controller.scheduler.epoch_step()
    thinned = nncfx.thin(wrapped, inputs, align=1)
    state = thinned.model.state_dict()
    assert state[attention[0]].shape == (12, 16)
    assert state[f"{layer}.intermediate.dense.weight"].shape == (22, 16)
    assert thinned.max_error < 1e-5


def test_blocks_that_do_not_tile_a_weight_are_refused() -> None:
    structure = {"mode": "block", "sparse_factors": [4, 4], "target_scopes": "{re}.*"}
    with pytest.raises(CompressionError, match=r"Blocks of \[4, 4\] do not tile '0.weight'"):
        applied(sparse_structure_by_scopes=[structure])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"warmup_end_epoch": 1}, "is not after 'warmup_start_epoch'"),
        ({"init_importance_threshold": 2.0}, "is above 'final_importance_threshold'"),
        ({"sparsity_target": 1.0}, r"must lie in \[0, 1\)"),
        (
            {"sparsity_target": 0.5, "final_importance_threshold": 0.1},
            r"0.5 decides the thresholds.*would do nothing",
        ),
    ],
)
def test_a_warm_up_that_cannot_work_is_a_fault(keys: dict[str, float], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        MovementSparsityParams.from_dict(PARAMS | keys)


def test_a_key_of_another_mode_is_a_fault() -> None:
    structure = {"mode": "fine", "axis": 1, "target_scopes": "x"}
    with pytest.raises(ConfigError, match=r"axis: belongs to mode 'per_dim'"):
        applied(sparse_structure_by_scopes=[structure])


def test_a_structure_for_scopes_that_match_nothing_is_refused() -> None:
    structure = {"mode": "per_dim", "axis": 0, "target_scopes": ["Sequential/Linaer[0]"]}
    where = r"sparse_structure_by_scopes\[0\]\.target_scopes\[0\]: 'Sequential/Linaer\[0\]'"
    with pytest.raises(ConfigError, match=where + r" matches no.*Did you mean"):
        applied(sparse_structure_by_scopes=[structure])
    controller, _ = applied(sparse_structure_by_scopes=[structure], validate_scopes=False)
    assert controller.configs[0].to_dict()["sparse_structure_by_scopes"][0]["target_scopes"] == []
