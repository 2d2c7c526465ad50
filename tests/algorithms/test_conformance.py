"""What every registered algorithm promises.

A new algorithm adds one line to SUBJECTS; one without a line is an error.
"""

import dataclasses
from collections.abc import Callable

import pytest

from nncfx.controllers import (
    registered_algorithms,
)
from nncfx.testing import ALGORITHM_PROMISES, AlgorithmSubject

_ALL = (
    AlgorithmSubject({"algorithm": "magnitude_sparsity", "params": {"sparsity_target_epoch": 3}}),
    AlgorithmSubject(
        {
            "algorithm": "filter_pruning",
            "params": {"align": 1, "pruning_steps": 3, "prune_first_conv": True},
        },
    ),
    AlgorithmSubject(
        {
            "algorithm": "magnitude_sparsity",
            "params": {
                "schedule": "exponential",
                "sparsity_level_setting_mode": "local",
                "sparsity_target_epoch": 3,
                "update_per_optimizer_step": True,
                "weight_importance": "abs",
            },
        },
    ),
    AlgorithmSubject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "all_weights": True,
                "filter_importance": "geometric_median",
                "pruning_flops_target": 0.6,
                "pruning_steps": 3,
                "prune_batch_norms": False,
                "prune_first_conv": True,
            },
        },
    ),
    AlgorithmSubject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "constrained": False,
                "pruning_steps": 3,
                "prune_first_conv": True,
            },
        },
    ),
    AlgorithmSubject(
        {
            "algorithm": "filter_pruning",
            "params": {
                "align": 1,
                "constrained": False,
                "pruning_side": "output",
                "pruning_steps": 3,
                "prune_first_conv": True,
            },
        },
    ),
    *(
        AlgorithmSubject({"algorithm": name, "params": {"align": 1, "pruning_steps": 3}})
        for name in ("head_pruning", "neuron_pruning")
    ),
    *(
        AlgorithmSubject(
            {
                "algorithm": "filter_pruning",
                "params": {
                    "align": 1,
                    "filter_importance": importance,
                    "pruning_steps": 3,
                    "prune_first_conv": True,
                },
            }
        )
        for importance in ("LAMP", "batch_norm_scale", "max", "random")
    ),
    AlgorithmSubject(
        {
            "algorithm": "branch_pruning",
            "params": {"pruning_steps": 3, "pruning_target": 0.6},
        },
        is_whole=True,
    ),
    AlgorithmSubject(
        {
            "algorithm": "structure_pruning",
            "params": {
                "align": 1,
                "all_weights": True,
                "pruning_parameters_target": 0.6,
                "pruning_steps": 3,
            },
        },
    ),
    AlgorithmSubject(
        {
            "algorithm": "block_pruning",
            "params": {"block": [4, 3], "sparsity_target_epoch": 3},
        },
    ),
    AlgorithmSubject({"algorithm": "rb_sparsity", "params": {"sparsity_target_epoch": 3}}),
    AlgorithmSubject(
        {"algorithm": "lc", "params": {"schedule": "polynomial", "sparsity_target_epoch": 3}},
    ),
    AlgorithmSubject({"algorithm": "nm_sparsity", "params": {"start_epoch": 2}}),
    AlgorithmSubject(
        {
            "algorithm": "movement_sparsity",
            "params": {
                "warmup_start_epoch": 1,
                "warmup_end_epoch": 3,
                "importance_regularization_factor": 0.1,
            },
        },
        has_level=False,
    ),
    AlgorithmSubject({"algorithm": "weight_clustering", "bits": 3, "params": {"start_epoch": 2}}),
    AlgorithmSubject(
        {"algorithm": "entropy_constraint", "rate": 0.0, "params": {"target_epoch": 3}},
    ),
    AlgorithmSubject(
        {
            "algorithm": "quantization",
            "initializer": {"range": {"num_init_samples": 0}},
            "params": {"activations_quant_start_epoch": 1, "weights_quant_start_epoch": 1},
        },
        has_level=False,
        rounds=True,
    ),
    AlgorithmSubject({"algorithm": "const_sparsity"}, has_level=False),
    AlgorithmSubject({"algorithm": "knowledge_distillation", "type": "mse"}, has_level=False),
    AlgorithmSubject({"algorithm": "knowledge_distillation", "type": "softmax"}, has_level=False),
)

# a pair of algorithms is tried once, in both orders, each with the first of its settings
_FIRST = tuple({one.name: one for one in reversed(_ALL)}.values())
SUBJECTS = tuple(
    dataclasses.replace(one, partners=_FIRST[: _FIRST.index(one)]) if one in _FIRST else one
    for one in _ALL
)


def test_every_registered_algorithm_is_a_subject() -> None:
    assert set(registered_algorithms()) == {subject.name for subject in SUBJECTS}


@pytest.mark.parametrize("promise", ALGORITHM_PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize(
    "subject",
    SUBJECTS,
    ids=[
        "magnitude",
        "filter",
        "local",
        "macs",
        "unconstrained_input",
        "unconstrained_output",
        "heads",
        "neurons",
        "lamp",
        "norm_scale",
        "largest",
        "random",
        "branches",
        "structure",
        "blocks",
        "learned",
        "lc",
        "n_of_m",
        "movement",
        "clustering",
        "entropy",
        "quantization",
        "constant",
        "mse",
        "softmax",
    ],
)
def test_it_keeps_its_promise(
    subject: AlgorithmSubject, promise: Callable[[AlgorithmSubject], None]
) -> None:
    promise(subject)
