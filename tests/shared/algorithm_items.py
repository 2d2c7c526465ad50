"""An item of a config for each algorithm, with a schedule of few epochs."""

from collections.abc import Mapping
from typing import Any

ITEMS: Mapping[str, dict[str, Any]] = {
    "block_pruning": {"params": {"sparsity_target_epoch": 2, "block": [2, 3]}},
    "branch_pruning": {"params": {"pruning_steps": 2}},
    "const_sparsity": {},
    "entropy_constraint": {"bits": 3, "params": {"target_epoch": 2}},
    "filter_pruning": {
        "params": {"pruning_target": 0.25, "pruning_steps": 2, "prune_first_conv": True}
    },
    "head_pruning": {"params": {"align": 1, "pruning_steps": 2}},
    "knowledge_distillation": {"type": "softmax", "temperature": 2.0, "class_axis": -1},
    "lc": {"schemes": [{"name": "Prune"}, {"name": "Cluster", "bits": 3}]},
    "magnitude_sparsity": {"params": {"sparsity_target_epoch": 2}},
    "movement_sparsity": {
        "params": {
            "warmup_start_epoch": 1,
            "warmup_end_epoch": 3,
            "importance_regularization_factor": 0.1,
            "enable_structured_masking": False,
        }
    },
    "neuron_pruning": {"params": {"align": 1, "pruning_steps": 2}},
    "nm_sparsity": {"params": {"start_epoch": 1}},
    "quantization": {"initializer": {"range": {"num_init_samples": 0}}},
    "rb_sparsity": {
        "sparsity_init": 0.2,
        "params": {
            "sparsity_target_epoch": 2,
            "sparsity_freeze_epoch": 3,
            "update_per_optimizer_step": True,
            "steps_per_epoch": 3,
        },
    },
    "structure_pruning": {
        "params": {"align": 1, "pruning_steps": 2, "pruning_parameters_target": 0.4}
    },
    "weight_clustering": {"bits": 3, "params": {"start_epoch": 1}},
}
