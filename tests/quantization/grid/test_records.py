"""Quantizers as plain values."""

import json

import pytest
import torch
from torch import nn

from nncfx.errors import StorageError
from nncfx.quantization import quantize
from nncfx.quantization.grid.records import insertions_from, quantizer_records


def test_records_through_json_give_the_same_hooks_at_the_same_sites() -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)], weight_bits=4)
    records = json.loads(json.dumps(quantizer_records(model)))
    found = insertions_from(records)
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
    found = insertions_from([shared])
    assert len({id(one.hook) for one in found}) == 1


@pytest.mark.parametrize("key", ["spec", "sites", "shape"])
def test_a_damaged_record_is_refused(key: str) -> None:
    model = quantize(nn.Sequential(nn.Linear(3, 4)), [torch.randn(8, 3)])
    record = quantizer_records(model)[0]
    with pytest.raises(StorageError, match="damaged"):
        insertions_from([{name: value for name, value in record.items() if name != key}])
