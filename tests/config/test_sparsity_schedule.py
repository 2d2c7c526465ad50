"""What the sparsity configs demand beyond types."""

import pytest

from nncfx.algorithms.knowledge_distillation.config import KnowledgeDistillationConfig
from nncfx.algorithms.magnitude_sparsity.config import (
    MagnitudeSparsityConfig,
    MagnitudeSparsityParams,
)
from nncfx.algorithms.nm_sparsity.config import NMSparsityParams
from nncfx.algorithms.rb_sparsity.config import RBSparsityConfig
from nncfx.config import BatchNormAdaptation, SparsityParams
from nncfx.errors import ConfigError


def test_a_multistep_schedule_has_one_level_more_than_steps() -> None:
    with pytest.raises(ConfigError, match="has 2 levels for 2 steps"):
        SparsityParams(schedule="multistep", multistep_steps=(1, 2))


def test_multistep_steps_rise() -> None:
    with pytest.raises(ConfigError, match=r"\[2, 2\] does not rise"):
        SparsityParams(
            schedule="multistep", multistep_steps=(2, 2), multistep_sparsity_levels=(0.1, 0.2, 0.3)
        )


def test_other_schedules_do_not_look_at_multistep_keys() -> None:
    assert SparsityParams(multistep_steps=(2, 1)).schedule == "polynomial"


def test_an_adaptive_schedule_does_not_move_by_step() -> None:
    with pytest.raises(ConfigError, match="update_per_optimizer_step: an adaptive schedule"):
        SparsityParams(schedule="adaptive", update_per_optimizer_step=True)


def test_the_initial_level_is_not_above_the_target() -> None:
    with pytest.raises(ConfigError, match=r"sparsity_init: 0.6 is above 'params.sparsity_target"):
        MagnitudeSparsityConfig(sparsity_init=0.6)


@pytest.mark.parametrize(
    ("params", "epoch"),
    [
        (SparsityParams(), 100),  # NNCF's default
        (SparsityParams(sparsity_target_epoch=150), 150),
        (SparsityParams(sparsity_target_epoch=150, sparsity_freeze_epoch=120), 120),
        (SparsityParams(schedule="constant", sparsity_target_epoch=150), 100),
        (SparsityParams(schedule="multistep", multistep_steps=(120,)), 120),
    ],
)
def test_masks_freeze_after_the_schedule_unless_an_epoch_is_given(
    params: SparsityParams, epoch: int
) -> None:
    assert params.freeze_epoch == epoch


def test_a_list_becomes_a_tuple() -> None:
    params = MagnitudeSparsityParams(multistep_steps=[5])  # type: ignore[arg-type]
    assert params.multistep_steps == (5,)


def test_a_config_is_valid_by_construction() -> None:
    with pytest.raises(ConfigError, match=r"sparsity_target: 1.3 is out of range"):
        MagnitudeSparsityParams(sparsity_target=1.3)


def test_batch_norm_adaptation_takes_nncfs_default_number_of_samples() -> None:
    item = {"algorithm": "magnitude_sparsity", "initializer": {"batchnorm_adaptation": {}}}
    initializer = MagnitudeSparsityConfig.from_dict(item).initializer
    assert initializer.batchnorm_adaptation == BatchNormAdaptation(num_bn_adaptation_samples=2000)


def test_rb_sparsity_rises_exponentially_by_default() -> None:
    assert RBSparsityConfig().params.schedule == "exponential"


def test_a_pattern_that_removes_nothing_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="n: 4 of 4 removes nothing"):
        NMSparsityParams(n=4)


def test_distillation_of_squared_errors_has_no_temperature() -> None:
    with pytest.raises(ConfigError, match="temperature: belongs to type 'softmax'"):
        KnowledgeDistillationConfig(type="mse", temperature=2.0)


def test_distillation_has_no_scopes() -> None:
    with pytest.raises(ConfigError, match="ignored_scopes: distillation compares the outputs"):
        KnowledgeDistillationConfig(type="mse", ignored_scopes=("x",))
