"""Every key of NNCF's grammar has an effect on what is read, and every fault names its place."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from nncfx.config import NNCFConfig
from nncfx.errors import ConfigError

LEVELS = {
    "sparsity_level_setting_mode": "local",
    "sparsity_target": 0.7,
    "sparsity_target_epoch": 7,
    "sparsity_freeze_epoch": 9,
}
ADAPTATION = {"batchnorm_adaptation": {"num_bn_adaptation_samples": 77}}
QUANTIZER = {
    "mode": "asymmetric",
    "bits": 4,
    "signed": True,
    "per_channel": True,
    "ignored_scopes": ["{re}q"],
    "target_scopes": ["{re}w"],
}
ITEMS: list[dict[str, Any]] = [
    {
        "algorithm": "magnitude_sparsity",
        "sparsity_init": 0.1,
        "ignored_scopes": ["A/B"],
        "target_scopes": ["{re}C"],
        "validate_scopes": False,
        "initializer": ADAPTATION,
        "params": LEVELS
        | {
            "schedule": "polynomial",
            "power": 2.5,
            "concave": False,
            "weight_importance": "abs",
            "update_per_optimizer_step": True,
            "steps_per_epoch": 31,
        },
    },
    {
        "algorithm": "magnitude_sparsity",
        "params": {
            "schedule": "multistep",
            "multistep_steps": [3, 5],
            "multistep_sparsity_levels": [0.1, 0.2, 0.35],
        },
    },
    {
        "algorithm": "rb_sparsity",
        "sparsity_init": 0.05,
        "compression_lr_multiplier": 7.0,
        "params": LEVELS | {"schedule": "adaptive", "patience": 4, "step": 0.07, "eps": 0.01},
    },
    {
        "algorithm": "filter_pruning",
        "pruning_init": 0.11,
        "initializer": ADAPTATION,
        "params": {
            "filter_importance": "geometric_median",
            "pruning_target": 0.4,
            "pruning_steps": 13,
            "schedule": "exponential_with_bias",
            "num_init_steps": 3,
            "all_weights": True,
            "prune_first_conv": True,
            "prune_downsample_convs": True,
            "prune_batch_norms": False,
            "interlayer_ranking_type": "unweighted_ranking",
        },
    },
    {"algorithm": "filter_pruning", "params": {"pruning_flops_target": 0.4}},
    {
        "algorithm": "quantization",
        "preset": "mixed",
        "quantize_inputs": False,
        "quantize_outputs": True,
        "overflow_fix": "first_layer_only",
        "compression_lr_multiplier": 2.0,
        "weights": QUANTIZER,
        "activations": QUANTIZER | {"unified_scale_ops": [["a", "b"]]},
        "scope_overrides": {"weights": {"{re}x": {"bits": 5}}, "activations": {"y": {"bits": 3}}},
        "initializer": ADAPTATION
        | {
            "range": [
                {
                    "num_init_samples": 12,
                    "type": "percentile",
                    "params": {"min_percentile": 0.2, "max_percentile": 99.1},
                    "target_scopes": ["{re}a"],
                    "target_quantizer_group": "activations",
                }
            ],
            "precision": {"type": "manual", "bitwidth_per_scope": [[4, "a|WEIGHT"]]},
        },
        "params": {
            "batch_multiplier": 2,
            "activations_quant_start_epoch": 2,
            "weights_quant_start_epoch": 4,
            "lr_poly_drop_start_epoch": 5,
            "lr_poly_drop_duration_epochs": 6,
            "disable_wd_start_epoch": 7,
            "base_lr": 0.01,
            "base_wd": 1e-4,
        },
    },
    {"algorithm": "knowledge_distillation", "type": "softmax", "scale": 2.5, "temperature": 3.5},
    {
        "algorithm": "movement_sparsity",
        "params": {
            "warmup_start_epoch": 1,
            "warmup_end_epoch": 4,
            "importance_regularization_factor": 0.2,
            "enable_structured_masking": False,
            "power": 2.0,
            "init_importance_threshold": -0.5,
            "final_importance_threshold": 0.25,
            "steps_per_epoch": 6,
        },
        "sparse_structure_by_scopes": [
            {"mode": "block", "sparse_factors": [8, 8], "target_scopes": ["{re}q"]},
            {"mode": "per_dim", "axis": 1, "target_scopes": ["{re}v"]},
            {"mode": "fine", "sparse_factors": [1, 1], "target_scopes": ["{re}z"]},
        ],
    },
]
TOP: dict[str, Any] = {
    "input_info": [
        {"sample_size": [1, 3, 8, 8], "type": "float", "filler": "zeros", "keyword": "x"}
    ],
    "target_device": "CPU",
    "compression_lr_multiplier": 3.0,
    "ignored_scopes": ["{re}a.*"],
    "target_scopes": ["{re}b"],
    "accuracy_aware_training": {
        "mode": "adaptive_compression_level",
        "params": {
            "maximal_absolute_accuracy_degradation": 0.5,
            "initial_training_phase_epochs": 2,
            "patience_epochs": 4,
            "initial_compression_rate_step": 0.2,
            "compression_rate_step_reduction_factor": 0.6,
            "lr_reduction_factor": 0.7,
            "minimal_compression_rate_step": 0.01,
            "maximal_total_epochs": 44,
        },
    },
}
CONFIGS = [TOP | {"compression": [item]} for item in ITEMS]
NAMES = [str(item["algorithm"]) for item in ITEMS]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:  # noqa: ANN401 (JSON)
    """Yield path and value of all that is no object and no list of objects."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, one in enumerate(value):
            yield from leaves(one, (*path, number))
    else:
        yield path, value


def at(value: Any, path: tuple[Any, ...]) -> Any:  # noqa: ANN401 (JSON)
    for key in path:
        value = value[key]
    return value


def spelt(path: tuple[Any, ...]) -> str:
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return "".join(parts).removeprefix(".")


def told(config: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        NNCFConfig.from_dict(config)
    return str(caught.value)


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_no_key_is_lost(config: dict[str, Any]) -> None:
    kept = NNCFConfig.from_dict(config).to_dict()
    for path, value in leaves(config):
        assert at(kept, path) == value, spelt(path)


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_a_value_of_the_wrong_type_is_told_with_its_place(config: dict[str, Any]) -> None:
    for path, _ in leaves(config):
        changed = copy.deepcopy(config)
        at(changed, path[:-1])[path[-1]] = {"of": "no use"}
        assert f"{spelt(path)}: " in told(changed) or f"{spelt(path)}." in told(changed)


@pytest.mark.parametrize("config", CONFIGS, ids=NAMES)
def test_a_misspelt_key_is_told_with_its_place(config: dict[str, Any]) -> None:
    for path, _ in leaves(config):
        changed = copy.deepcopy(config)
        place = at(changed, path[:-1])
        place[f"{path[-1]}s"] = place.pop(path[-1])
        assert f"{path[-1]}s" in told(changed), spelt(path)


def test_a_misspelt_algorithm_is_taken_for_one() -> None:
    message = told({"compression": {"algorithms": "const_sparsity"}})
    assert "Here is 'algorithms', which is unknown: is it meant to be 'algorithm'?" in message
