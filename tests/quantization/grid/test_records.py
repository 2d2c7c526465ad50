"""Quantizers as plain values."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.quantization import quantize
from nncfx.quantization.grid.records import insertions_from, plan_records, quantizer_records
from nncfx.quantization.placement import overflow_fix
from nncfx.quantization.placement.insertions import plans_of
from nncfx.targets import target_named

DATA = [torch.randn(8, 3)]


def test_records_through_json_give_the_same_hooks_at_the_same_sites() -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)], weight_bits=4)
    records = json.loads(json.dumps(quantizer_records(model)))
    found = insertions_from(records, plan_records(model))
    for one, other in zip(found, model.nncf.hooks, strict=True):
        assert (one.site, one.priority, one.algorithm) == (
            other.site,
            other.priority,
            other.algorithm,
        )
        assert one.hook.state_dict().keys() == other.hook.state_dict().keys()
        assert repr(one.hook) == repr(other.hook)


def test_quantizers_of_other_algorithms_can_be_left_out() -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)])
    assert quantizer_records(model, without=["quantization"]) == []


def test_a_hook_at_several_sites_is_one_record() -> None:
    first, second = nn.Linear(3, 3), nn.Linear(3, 3)
    second.weight = first.weight
    model = quantize(nn.Sequential(first, second), [torch.randn(8, 3)])
    (shared,) = [one for one in quantizer_records(model) if len(one["sites"]) > 1]
    found = insertions_from([shared], plan_records(model))
    assert len({id(one.hook) for one in found}) == 1


def test_a_file_does_not_depend_on_the_cpu_that_writes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for saturates in (True, False):
        monkeypatch.setattr(f"{overflow_fix.__name__}.byte_sums_saturate", lambda: saturates)  # noqa: B023 (called in this turn)
        model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)])
        assert plans_of(model)[0].saturating == saturates
        written.append(plan_records(model))
    assert written[0] == written[1]


@pytest.mark.parametrize("key", ["spec", "sites", "shape"])
def test_a_damaged_record_is_refused(key: str) -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)])
    record = quantizer_records(model)[0]
    with pytest.raises(StorageError, match="damaged"):
        insertions_from([{name: value for name, value in record.items() if name != key}])


def test_a_plan_comes_back_with_its_target_and_what_stays_in_float() -> None:
    own = replace(target_named("onnxruntime"), name="mine", sigmoid_tables=False)
    for target in ("tensorrt", own):
        model = quantize(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), DATA, target=target)
        records, plans = json.loads(json.dumps([quantizer_records(model), plan_records(model)]))
        hooks = {id(one.hook): one.hook for one in insertions_from(records, plans)}
        (found,) = {id(one.plan): one.plan for one in hooks.values()}.values()
        (plan,) = plans_of(model)
        assert (found.target, found.hardware) == (plan.target, plan.hardware)
        assert found.float_operations == plan.float_operations
        assert len(plan.float_operations) == 1
        for one, other in zip(found.quantizers, plan.quantizers, strict=True):
            assert (one.name, one.role, one.operations) == (
                other.name,
                other.role,
                other.operations,
            )
            assert (one.sites, one.parameter) == (other.sites, other.parameter)


def test_records_of_before_have_no_plan() -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), DATA)
    records = quantizer_records(model)
    for one in records:
        del one["planned"]
    assert {one.hook.plan for one in insertions_from(records)} == {None}


@pytest.mark.parametrize("name", ["", "a.b", "forward", "training", "__class__", "_modules"])
def test_a_record_of_an_algorithm_that_cannot_be_is_refused(name: str) -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), DATA)
    record = quantizer_records(model)[0] | {"algorithm": name}
    with pytest.raises(StorageError, match=f"'{name}' cannot name an algorithm"):
        insertions_from([record], plan_records(model))


@pytest.mark.parametrize("plans", [[], [{"hardware": "onnxruntime", "quantizers": []}], [3]])
def test_a_damaged_plan_is_refused(plans: list[object]) -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), DATA)
    with pytest.raises(StorageError, match="plan of quantization in the file is damaged"):
        insertions_from(quantizer_records(model), plans)


def test_many_quantizers_with_more_scales_than_the_model_has_elements_are_refused() -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), DATA)
    record = quantizer_records(model)[0] | {"shape": [6]}
    assert len(insertions_from([record], plan_records(model), most=10)) == 1
    with pytest.raises(StorageError, match="scales have the shape"):
        insertions_from([record] * 2, plan_records(model), most=10)
