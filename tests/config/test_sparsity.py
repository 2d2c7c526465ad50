"""What the sparsity configs demand beyond types."""

import pytest

from nncfx.config import MagnitudeSparsityConfig, MagnitudeSparsityParams, SparsityParams
from nncfx.errors import ConfigError


def test_a_multistep_schedule_has_one_level_more_than_steps() -> None:
    with pytest.raises(ConfigError, match="has 2 levels for 2 steps"):
        SparsityParams(schedule="multistep", multistep_steps=(1, 2))


def test_multistep_steps_rise() -> None:
    with pytest.raises(ConfigError, match=r"\[2, 2\] does not rise"):
        SparsityParams(
            schedule="multistep",
            multistep_steps=(2, 2),
            multistep_sparsity_levels=(0.1, 0.2, 0.3),
        )


def test_other_schedules_do_not_look_at_multistep_keys() -> None:
    assert SparsityParams(multistep_steps=(2, 1)).schedule == "polynomial"


def test_an_adaptive_schedule_does_not_move_by_step() -> None:
    with pytest.raises(ConfigError, match="update_per_optimizer_step: an adaptive schedule"):
        SparsityParams(schedule="adaptive", update_per_optimizer_step=True)


def test_the_initial_level_is_not_above_the_target() -> None:
    with pytest.raises(
        ConfigError, match=r"sparsity_init: 0.6 lies above 'params.sparsity_target"
    ):
        MagnitudeSparsityConfig(sparsity_init=0.6)


def test_a_list_becomes_a_tuple() -> None:
    params = MagnitudeSparsityParams(multistep_steps=[5])  # type: ignore[arg-type]
    assert params.multistep_steps == (5,)


def test_a_config_is_valid_by_construction() -> None:
    with pytest.raises(ConfigError, match=r"sparsity_target: 1.3 is out of range"):
        MagnitudeSparsityParams(sparsity_target=1.3)


def test_batch_norm_adaptation_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"initializer: known to NNCF.*adaptation is not built"):
        MagnitudeSparsityConfig.from_dict({"algorithm": "magnitude_sparsity", "initializer": {}})
