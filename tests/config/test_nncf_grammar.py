"""Configs of the shapes that NNCF's own samples have are read as they stand."""

from pathlib import Path

import pytest

from nncfx.config import NNCFConfig
from nncfx.errors import ConfigError

DETECTOR = r"""{
    "model": "a detector", "batch_size": 16, "dataset": "voc",
    "input_info": {"sample_size": [4, 3, 160, 160]},
    "optimizer": {"steps": [1, 2], "parameter_groups": [{"lr": 1e-3, "re": ".*\\._mask"}]},
    "ssd_params": {"aspect_ratios": [[2], [2, 3]], "clip": false},
    "compression": [
        {
            "algorithm": "magnitude_sparsity",
            "sparsity_init": 0.2,
            "params": {
                "schedule": "multistep",
                "multistep_sparsity_levels": [
                    0.2,
                    0.4,
                    0.6,  // the last comma stands in their files too
                ],
                "multistep_steps": [10, 20]
            }
        },
        {"algorithm": "quantization"}
    ]
}"""

RANKED = """{
    "accuracy_aware_training": {
        "mode": "adaptive_compression_level",
        "params": {"initial_training_phase_epochs": 0, "patience_epochs": 1}
    },
    "target_device": "VPU",
    "compression": {
        "algorithm": "filter_pruning",
        "params": {
            "pruning_flops_target": 0.3,
            "interlayer_ranking_type": "learned_ranking",
            "legr_params": {"generations": 10}
        }
    }
}"""


OLD_STYLES = """{
    "target_device": "NPU",
    "accuracy_aware_training": {
        "mode": "adaptive_compression_level",
        "params": {
            "maximal_absolute_accuracy_degradation": 2,
            "initial_training_phase_epochs": 0,
            "patience_epochs": 1
        }
    },
    "compression": [
        {
            "algorithm": "filter_pruning",
            "pruning_init": 0.8,
            "params": {"pruning_target": 0.2, "pruning_steps": 1, "num_init_steps": 0}
        },
        {
            "algorithm": "quantization",
            "initializer": {
                "precision": {"bitwidth_per_scope": [[4, "Net/NNCFLinear[0]/linear_0|WEIGHT"]]},
                "range": {"num_init_samples": 1}
            }
        },
        {
            "algorithm": "rb_sparsity",
            "ignored_scopes": ["Net/NNCFConv2d[0]/conv2d_0"],
            "params": {
                "schedule": "multistep",
                "multistep_steps": [2, 4],
                "multistep_sparsity_levels": [0.1, 0.2, 0.3],
                "sparsity_freeze_epoch": 5
            }
        }
    ],
    "checkpoint_save_dir": "results", "test_every_n_epochs": 5, "no_strip_on_export": true
}"""


def read(text: str, folder: Path) -> NNCFConfig:
    file = folder / "config.json"
    file.write_text(text)
    return NNCFConfig.from_json(file)


def test_a_multistep_schedule_beside_quantization_is_read(tmp_path: Path) -> None:
    config = read(DETECTOR, tmp_path)
    sparsity, quantization = config.compression
    assert sparsity.to_dict()["params"]["multistep_sparsity_levels"] == [0.2, 0.4, 0.6]
    assert quantization.algorithm == "quantization"


def test_a_falling_level_and_bits_by_scope_without_a_type_are_read(tmp_path: Path) -> None:
    pruning, quantization, sparsity = read(OLD_STYLES, tmp_path).compression
    assert pruning.to_dict()["pruning_init"] == 0.8
    assert quantization.to_dict()["initializer"]["precision"]["type"] == "manual"
    assert sparsity.to_dict()["params"]["multistep_steps"] == [2, 4]


def test_learned_ranking_and_a_device_of_old_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(RANKED, tmp_path)
    text = str(caught.value)
    assert "has 3 faults" in text
    assert "Use 'unweighted_ranking'" in text
    assert "target_device: 'VPU' is not known here" in text
    assert "Did you mean 'NPU'?" in text
