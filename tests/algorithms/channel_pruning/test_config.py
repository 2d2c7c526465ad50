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


LATENCY = {"pruning_latency_target": 0.4, "latency_table": "table.json"}


def test_the_target_of_a_latency_is_the_target() -> None:
    params = ChannelPruningParams.from_dict(LATENCY)
    assert (params.target, params.budget) == (0.4, "latency")


def test_layers_that_choose_on_their_own_have_a_side() -> None:
    assert FilterPruningParams(pruning_side="output", constrained=False).pruning_side == "output"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"pruning_flops_target": 0.5, "pruning_parameters_target": 0.3},
            "pruning_parameters_target: is given with 'pruning_fl",
        ),
        (
            {"pruning_target": 0.5, "pruning_flops_target": 0.3},
            "pruning_flops_target: is given with 'pruning_target'",
        ),
        (
            {"interlayer_ranking_type": "learned_ranking"},
            "'learned_ranking' is known to NNCF.*LeGR",
        ),
        ({"pruning_side": "output"}, "pruning_side: has no effect where 'constrained' is true"),
        ({"pruning_latency_target": 0.4}, "latency_table: .*Give both or neither"),
        ({"latency_table": "table.json"}, "latency_table: .*Give both or neither"),
        (LATENCY | {"constrained": False}, "pruning_latency_target: applies to widths that all"),
        ({"pruning_latency_targt": 0.4}, "Did you mean 'pruning_latency_target'"),
    ],
)
def test_params_that_do_not_go_together_are_a_fault(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FilterPruningParams.from_dict(keys)


def test_the_initial_level_may_lie_above_the_target_as_in_a_config_of_nncfs() -> None:
    assert FilterPruningConfig(pruning_init=0.6).params.target == 0.5
