"""What every registered algorithm promises.

A new algorithm adds one line to SUBJECTS; one without a line is an error.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from nncfx.controllers import registered_algorithms
from nncfx.testing import ALGORITHM_PROMISES, AlgorithmSubject


def of(
    algorithm: str,
    *,
    item: Mapping[str, Any] | None = None,
    has_level: bool = True,
    rounds: bool = False,
    is_whole: bool = False,
    **params: object,
) -> AlgorithmSubject:
    written = {"algorithm": algorithm, **(item or {})} | ({"params": params} if params else {})
    return AlgorithmSubject(written, has_level=has_level, rounds=rounds, is_whole=is_whole)


def filters(**params: object) -> AlgorithmSubject:
    return of("filter_pruning", align=1, pruning_steps=3, prune_first_conv=True, **params)


_ALL = {
    "magnitude": of("magnitude_sparsity", sparsity_target_epoch=3),
    "filter": filters(),
    "local": of(
        "magnitude_sparsity",
        schedule="exponential",
        sparsity_level_setting_mode="local",
        sparsity_target_epoch=3,
        update_per_optimizer_step=True,
        weight_importance="abs",
    ),
    "macs": filters(
        all_weights=True,
        filter_importance="geometric_median",
        pruning_flops_target=0.6,
        prune_batch_norms=False,
    ),
    "unconstrained_input": filters(constrained=False),
    "unconstrained_output": filters(constrained=False, pruning_side="output"),
    "heads": of("head_pruning", align=1, pruning_steps=3),
    "neurons": of("neuron_pruning", align=1, pruning_steps=3),
    "lamp": filters(filter_importance="LAMP"),
    "norm_scale": filters(filter_importance="batch_norm_scale"),
    "largest": filters(filter_importance="max"),
    "random": filters(filter_importance="random"),
    "branches": of("branch_pruning", pruning_steps=3, pruning_target=0.6, is_whole=True),
    "structure": of(
        "structure_pruning",
        align=1,
        all_weights=True,
        pruning_parameters_target=0.6,
        pruning_steps=3,
    ),
    "blocks": of("block_pruning", block=[4, 3], sparsity_target_epoch=3),
    "learned": of("rb_sparsity", sparsity_target_epoch=3),
    "lc": of("lc", schedule="polynomial", sparsity_target_epoch=3),
    "n_of_m": of("nm_sparsity", start_epoch=2),
    "movement": of(
        "movement_sparsity",
        warmup_start_epoch=1,
        warmup_end_epoch=3,
        importance_regularization_factor=0.1,
        has_level=False,
    ),
    "clustering": of("weight_clustering", item={"bits": 3}, start_epoch=2),
    "entropy": of("entropy_constraint", item={"rate": 0.0}, target_epoch=3),
    "quantization": of(
        "quantization",
        item={"initializer": {"range": {"num_init_samples": 0}}},
        activations_quant_start_epoch=1,
        weights_quant_start_epoch=1,
        has_level=False,
        rounds=True,
    ),
    "constant": of("const_sparsity", has_level=False),
    "mse": of("knowledge_distillation", item={"type": "mse"}, has_level=False),
    "softmax": of("knowledge_distillation", item={"type": "softmax"}, has_level=False),
}

# a pair of algorithms is tried once, in both orders, each with the first of its settings
_FIRST = tuple({one.name: one for one in reversed(_ALL.values())}.values())
SUBJECTS = tuple(
    dataclasses.replace(one, partners=_FIRST[: _FIRST.index(one)]) if one in _FIRST else one
    for one in _ALL.values()
)


def test_every_registered_algorithm_is_a_subject() -> None:
    assert set(registered_algorithms()) == {subject.name for subject in SUBJECTS}


@pytest.mark.parametrize("promise", ALGORITHM_PROMISES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("subject", SUBJECTS, ids=_ALL)
def test_it_keeps_its_promise(
    subject: AlgorithmSubject, promise: Callable[[AlgorithmSubject], None]
) -> None:
    promise(subject)
