"""Reading a whole config: what is accepted, and how its faults are told."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from nncfx._version import __version__
from nncfx.algorithms.channel_pruning.config import FilterPruningConfig
from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
from nncfx.config import AccuracyAwareParams, InputInfo, NNCFConfig, algorithm_configs
from nncfx.errors import ConfigError

MAGNITUDE = {"algorithm": "magnitude_sparsity"}
PRUNING = {"algorithm": "filter_pruning"}


def faults(data: Any) -> list[str]:  # noqa: ANN401
    with pytest.raises(ConfigError) as caught:
        NNCFConfig.from_dict(data)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def fault(data: Any) -> str:  # noqa: ANN401
    (only,) = faults(data)
    return only


def test_an_empty_config_is_valid() -> None:
    assert NNCFConfig.from_dict({}) == NNCFConfig()


WITHOUT_A_CHOICE = sorted(
    set(algorithm_configs()) - {"knowledge_distillation", "movement_sparsity"}
)


@pytest.mark.parametrize("name", WITHOUT_A_CHOICE)
def test_an_algorithm_with_nothing_but_its_name_is_valid(name: str) -> None:
    (config,) = NNCFConfig.from_dict({"compression": {"algorithm": name}}).compression
    assert config == algorithm_configs()[name]()


@pytest.mark.parametrize("name", WITHOUT_A_CHOICE)
def test_defaults_written_out_are_read_as_the_defaults(name: str) -> None:
    written = algorithm_configs()[name]().to_dict()
    assert algorithm_configs()[name].from_dict(json.loads(json.dumps(written))) == (
        algorithm_configs()[name]()
    )


def test_one_algorithm_may_stand_without_a_list() -> None:
    listed = NNCFConfig.from_dict({"compression": [MAGNITUDE]})
    assert NNCFConfig.from_dict({"compression": MAGNITUDE}) == listed


def test_a_single_scope_and_a_single_input_may_stand_without_a_list() -> None:
    config = NNCFConfig.from_dict(
        {"ignored_scopes": "{re}fc", "input_info": {"sample_size": [1, 3]}}
    )
    assert config.ignored_scopes == ("{re}fc",)
    assert config.input_info == (InputInfo(sample_size=(1, 3)),)


def test_several_algorithms_keep_their_order() -> None:
    config = NNCFConfig.from_dict({"compression": [{"algorithm": "filter_pruning"}, MAGNITUDE]})
    assert [type(one) for one in config.compression] == [
        FilterPruningConfig,
        MagnitudeSparsityConfig,
    ]


def test_a_whole_number_may_be_written_with_a_point() -> None:
    item = MAGNITUDE | {"params": {"patience": 2.0}}
    patience = NNCFConfig.from_dict({"compression": item}).compression[0].to_dict()["params"]
    assert repr(patience["patience"]) == "2"


EARLY = {"maximal_relative_accuracy_degradation": 1.0, "maximal_total_epochs": 9}


def early(**keys: object) -> dict[str, Any]:
    return {"accuracy_aware_training": {"mode": "early_exit", "params": EARLY | keys}}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"compression": [MAGNITUDE | {"params": {"sparsity_tarjet": 0.5}}]},
            (
                "compression[0].params.sparsity_tarjet: unknown key; no key is silently ignored. "
                "Did you mean 'sparsity_target'? Known here: concave, "
            ),
        ),
        (
            {"compression": [MAGNITUDE | {"params": {"concave": "yes"}}]},
            "compression[0].params.concave: 'yes' is a string; it must be true or false (",
        ),
        (
            {"compression": [PRUNING | {"params": {"pruning_target": 30}}]},
            (
                "compression[0].params.pruning_target: 30 is out of range; it must lie in [0, 1) "
                "(the fraction of filters, heads or neurons that is removed at the end, 0.5 if no "
                "target is given). Write 0.3 for 30 %."
            ),
        ),
        (
            {"compression": [PRUNING | {"all_weights": True}]},
            (
                "compression[0].all_weights: 'all_weights' belongs one level deeper. "
                "Move it into 'params'."
            ),
        ),
        ({"compression": [MAGNITUDE, MAGNITUDE]}, "'magnitude_sparsity' is listed more than once"),
        ({"compression": [{}]}, "the key 'algorithm' is missing"),
        ({"input_info": [{"type": "long"}]}, "input_info[0]: the key 'sample_size' is missing"),
        ({"target_device": "cpu"}, "Did you mean 'CPU'?"),
        ({3: 4}, "the key 3 is not a string"),
        (
            early(maximal_absolute_accuracy_degradation=1),
            "accuracy_aware_training.params.maximal_absolute_accuracy_degradation: ",
        ),
        (
            early(patience_epochs=2),
            "accuracy_aware_training.params.patience_epochs: belongs to mode",
        ),
    ],
)
def test_a_fault_says_where_it_is_and_how_to_mend_it(data: dict[Any, Any], told: str) -> None:
    assert told in fault(data)


def test_a_key_at_the_top_that_is_none_of_ours_is_the_users() -> None:
    config = NNCFConfig.from_dict({"batch_size": 8, "optimizer": {"base_lr": 0.1}})
    assert config.user_keys == ("batch_size", "optimizer")
    assert config.user["optimizer"] == {"base_lr": 0.1}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("compresion", "compression"),
        ("input_infos", "input_info"),
        ("Target_Device", "target_device"),
        ("ignored_scope", "ignored_scopes"),
        ("accuracy_aware_trainig", "accuracy_aware_training"),
    ],
)
def test_a_misspelt_key_at_the_top_is_a_fault(key: str, meant: str) -> None:
    text = fault({key: {}})
    assert text.startswith(f"{key}: unknown key")
    assert f"Did you mean '{meant}'?" in text


SAMPLE_KEYS = (
    "model", "pretrained", "num_classes", "batch_size", "batch_size_val", "epochs", "optimizer",
    "dataset", "dataset_dir", "multiprocessing_distributed", "lr", "weights", "criterion",
    "resuming_checkpoint_path", "model_params", "preprocessing", "color_space", "ssd_params",
    "test_interval", "save_freq", "basenet", "print_freq", "seed", "workers", "log_dir",
    "batch_size_init", "max_iter", "iter_size", "mean", "std", "metrics", "no_strip_on_export",
    "quick_test", "test_every_n_epochs", "dataset_type", "mode",
)  # fmt: skip


def test_the_keys_of_nncfs_sample_scripts_are_the_users() -> None:
    config = NNCFConfig.from_dict(dict.fromkeys(SAMPLE_KEYS, 1) | {"compression": MAGNITUDE})
    assert config.user_keys == SAMPLE_KEYS


def test_the_users_own_keys_survive_json_and_the_schema_allows_them() -> None:
    data = {"model": {"name": ["resnet", 18]}, "compression": [MAGNITUDE]}
    config = NNCFConfig.from_dict(data)
    assert NNCFConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    jsonschema.validate(data, NNCFConfig.schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"weights": {"bits": 1}}, "compression.weights.bits: 1 is out of range"),
        ({"activations": {"bits": 17}}, "compression.activations.bits: 17 is out of range"),
        ({"scope_overrides": {"weights": {"x": {"bits": 1}}}}, "weights.x.bits: 1 is out of"),
        ({"activations": {"unified_scale_ops": [1]}}, "unified_scale_ops[0]: 1 is a whole"),
        ({"scope_overrides": {"weights": {"x": {"bit": 4}}}}, "weights.x.bit: unknown key"),
        ({"initializer": {"range": [{"type": "minmax"}]}}, "range[0].type: 'minmax' is not"),
        ({"initializer": {"precision": {"type": "autoq"}}}, "AutoQ is not implemented"),
    ],
)
def test_a_fault_of_quantization_names_its_place(change: dict[str, Any], place: str) -> None:
    assert place in fault({"compression": {"algorithm": "quantization"} | change})


@pytest.mark.parametrize("params", ["x", [], 3, None])
def test_a_rule_about_a_section_of_another_type_does_not_run(params: object) -> None:
    text = fault({"accuracy_aware_training": {"mode": "early_exit", "params": params}})
    assert text.startswith("accuracy_aware_training.params: ")


def test_without_a_budget_one_percent_may_go() -> None:
    data = {"mode": "early_exit", "params": {"maximal_total_epochs": 9}}
    config = NNCFConfig.from_dict({"accuracy_aware_training": data})
    assert config.accuracy_aware_training.params.least_accuracy(80) == pytest.approx(79.2)


@pytest.mark.parametrize(("dense", "least"), [(80.0, 76.0), (-1.4, -1.47), (0.0, 0.0)])
def test_a_relative_budget_is_of_the_size_of_the_metric(dense: float, least: float) -> None:
    params = AccuracyAwareParams(maximal_relative_accuracy_degradation=5)
    assert params.least_accuracy(dense) == pytest.approx(least)


def test_the_adaptive_mode_names_every_key_that_is_missing() -> None:
    data = {"mode": "adaptive_compression_level", "params": EARLY}
    assert len(faults({"accuracy_aware_training": data})) == 2


def test_an_unknown_algorithm_is_named_with_the_nearest_one() -> None:
    known = ", ".join(f"'{name}'" for name in sorted(algorithm_configs()))
    assert fault({"compression": {"algorithm": "magnitude_sparsty"}}) == (
        f"compression.algorithm: 'magnitude_sparsty' is not known here; use one of: {known}. "
        "Did you mean 'magnitude_sparsity'?"
    )


def test_what_nncf_knows_and_we_do_not_is_refused_with_the_reason() -> None:
    refused = f"known to NNCF, not supported yet by nncfx {__version__}: "
    assert faults({"bootstrapNAS": {}, "compression": {"algorithm": "binarization"}}) == [
        f"bootstrapNAS: {refused}it is not implemented.",
        f"compression.algorithm: 'binarization' is {refused}it is not implemented.",
    ]


def test_the_device_of_nncf_1_is_refused_with_the_key_of_today() -> None:
    text = fault({"hw_config_type": "cpu", "compression": {"algorithm": "quantization"}})
    assert text.startswith("hw_config_type: known to NNCF")
    assert text.endswith("Write 'target_device', such as 'CPU'.")


def test_an_item_of_a_refused_algorithm_has_no_other_fault() -> None:
    assert len(faults({"compression": [{"algorithm": "binarization", "bits": 4}]})) == 1


@pytest.mark.parametrize("level", [-0.1, 1, 1.5, True, "0.5", None, float("nan"), [0.5]])
def test_what_is_no_level_is_a_fault(level: object) -> None:
    text = fault({"compression": [MAGNITUDE | {"sparsity_init": level}]})
    assert text.startswith("compression[0].sparsity_init: ")


def test_all_faults_of_a_file_are_told_at_once() -> None:
    pruning = {"algorithm": "filter_pruning", "params": {"schedule": "baselin"}}
    sparsity = MAGNITUDE | {
        "sparsity_init": 0.9,
        "params": {"schedule": "multistep", "multistep_steps": [3, 2]},
    }
    data = {"target_devise": 1, "compression": [pruning, sparsity], "ignored_scopes": [3]}
    assert [one.partition(":")[0] for one in faults(data)] == [
        "compression[0].params.schedule",
        "compression[1].params.multistep_sparsity_levels",
        "compression[1].params.multistep_steps",
        "ignored_scopes[0]",
        "target_devise",
    ]


@pytest.mark.parametrize("data", [None, 3, [], "x"])
def test_what_is_no_object_is_a_fault(data: object) -> None:
    assert fault(data).startswith("the config: ")


def test_the_schema_is_a_valid_draft_2020_12_schema() -> None:
    schema = NNCFConfig.schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    json.dumps(schema)


def test_the_schema_agrees_with_the_reader() -> None:
    validator = jsonschema.Draft202012Validator(NNCFConfig.schema())
    assert validator.is_valid({"compression": MAGNITUDE})
    assert not validator.is_valid({"compression": MAGNITUDE | {"level": 0.5}})


def test_a_file_may_have_comments_and_last_commas(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(
        """{
        // a comment, "quoted"
        "ignored_scopes": ["{re}http://x,]", /* more
        lines */ "{re}b",],
        "compression": {"algorithm": "magnitude_sparsity",},
        }"""
    )
    config = NNCFConfig.from_json(file)
    assert config.ignored_scopes == ("{re}http://x,]", "{re}b")
    assert config.compression == (MagnitudeSparsityConfig(),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"input_inf": 1}', "config.json' has 1 fault"),
        ('{\n// x\n"a": }', "is not JSON: Expecting value: line 3 column 6"),
        (
            '{"target_device": "CPU", "target_device": "GPU"}',
            "target_device: the key is given twice",
        ),
        (
            '{"compression": {"algorithm": "nm_sparsity", "params": {"m": NaN}}}',
            "1 fault:\n  compression.params.m: nan is not a finite number",  # 0 would be another
        ),
    ],
)
def test_the_faults_of_a_file_are_told_with_its_name(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        NNCFConfig.from_json(file)
    assert str(file) in str(caught.value)
    assert told in str(caught.value)


def test_a_file_may_begin_with_the_mark_that_editors_on_windows_write(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"target_device": "CPU"}', encoding="utf-8-sig")
    assert NNCFConfig.from_json(path).target_device == "CPU"


def test_a_config_is_taken_as_itself_as_a_mapping_or_as_a_path(tmp_path: Path) -> None:
    data = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.25}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(data))
    config = NNCFConfig.from_dict(data)
    assert NNCFConfig.of(config) is config
    assert NNCFConfig.of(data) == NNCFConfig.of(path) == NNCFConfig.of(str(path)) == config
    with pytest.raises(ConfigError, match="cannot be read"):
        NNCFConfig.of("nofile.json")


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (
            {"compression": MAGNITUDE | {"params": {"sparsity_init": 0.1}}},
            "'sparsity_init' belongs one level higher. Move it out of 'params'.",
        ),
        (
            {"compression": {"algorithm": "quantization", "num_init_samples": 3}},
            "'num_init_samples' belongs two levels deeper. Move it into 'initializer.range'.",
        ),
        (
            {"search": {"objective": "macs", "schemes": {"name": "Prune"}, "lr": 0.1}},
            "'lr' belongs one level deeper. Move it into 'optimizer'.",
        ),
    ],
)
def test_a_key_at_a_wrong_place_is_told_the_right_one(document: dict[str, Any], told: str) -> None:
    assert fault(document).endswith(told)


@pytest.mark.parametrize(
    ("key", "value", "home"),
    [
        ("algorithm", "quantization", "compression"),
        ("params", {"pruning_target": 0.4}, "compression"),
        ("pruning_init", 0.1, "compression"),
        ("sample_size", [1, 3], "input_info"),
    ],
)
def test_a_key_of_a_section_at_the_top_is_told_its_place(
    key: str, value: object, home: str
) -> None:
    with pytest.raises(ConfigError, match=f"'{key}' belongs one level deeper.*'{home}'"):
        NNCFConfig.from_dict({key: value})


def test_a_schema_that_was_changed_by_its_reader_changes_no_other() -> None:
    """Parts of it are kept from one to the next."""
    before = NNCFConfig.schema()
    for one in NNCFConfig.schema()["$defs"].values():
        one["properties"].clear()
    assert NNCFConfig.schema() == before
    assert all(one["properties"] for one in before["$defs"].values())
