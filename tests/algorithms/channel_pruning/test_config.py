"""What the pruning configs demand beyond types."""

import pytest

from nncfx.algorithms.channel_pruning.config import (
    ChannelPruningParams,
    FilterPruningConfig,
    FilterPruningParams,
)
from nncfx.errors import ConfigError


def test_without_a_target_half_the_filters_go() -> None:
    assert FilterPruningParams().target == 0.5


def test_the_target_of_macs_is_the_target() -> None:
    assert FilterPruningParams(pruning_flops_target=0.3).target == 0.3


def test_the_target_of_parameters_is_the_target() -> None:
    params = ChannelPruningParams(pruning_parameters_target=0.3)
    assert (params.target, params.budget) == (0.3, "parameters")


def test_every_further_target_is_a_fault() -> None:
    with pytest.raises(ConfigError, match="pruning_parameters_target: is given with 'pruning_fl"):
        ChannelPruningParams(pruning_flops_target=0.5, pruning_parameters_target=0.3)


def test_two_targets_are_a_fault() -> None:
    with pytest.raises(ConfigError, match="pruning_flops_target: is given with 'pruning_target'"):
        FilterPruningParams(pruning_target=0.5, pruning_flops_target=0.3)


def test_the_initial_level_may_lie_above_the_target_as_in_a_config_of_nncfs() -> None:
    assert FilterPruningConfig(pruning_init=0.6).params.target == 0.5


def test_learned_ranking_is_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"'learned_ranking' is known to NNCF.*LeGR"):
        FilterPruningParams.from_dict({"interlayer_ranking_type": "learned_ranking"})


def test_a_side_that_has_no_say_is_a_fault() -> None:
    with pytest.raises(
        ConfigError, match="pruning_side: has no effect where 'constrained' is true"
    ):
        FilterPruningParams(pruning_side="output")
    assert FilterPruningParams(pruning_side="output", constrained=False).pruning_side == "output"


def test_a_latency_and_the_table_that_predicts_it_come_together() -> None:
    params = ChannelPruningParams(pruning_latency_target=0.4, latency_table="table.json")
    assert (params.target, params.budget) == (0.4, "latency")
    for half in ({"pruning_latency_target": 0.4}, {"latency_table": "table.json"}):
        with pytest.raises(ConfigError, match=r"latency_table: .*Give both or neither"):
            ChannelPruningParams.from_dict(half)


def test_a_latency_has_no_say_where_layers_choose_on_their_own() -> None:
    with pytest.raises(ConfigError, match="pruning_latency_target: applies to widths that all"):
        ChannelPruningParams(
            pruning_latency_target=0.4, latency_table="table.json", constrained=False
        )


def test_a_misspelt_latency_target_is_an_error_with_the_key_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'pruning_latency_target'"):
        FilterPruningParams.from_dict({"pruning_latency_targt": 0.4, "latency_table": "x.json"})
