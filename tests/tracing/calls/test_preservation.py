"""Promises of nncfx.tracing.calls.preservation."""

import pytest
import torch
from torch import nn

from nncfx.tracing.calls.preservation import preserved


def test_buffers_come_back_by_value_and_by_identity() -> None:
    norm = nn.BatchNorm1d(2)
    mean, count = norm.running_mean, norm.num_batches_tracked
    with preserved(norm, train=True):
        norm(torch.randn(4, 2))
        norm.num_batches_tracked = torch.tensor(9)
    assert norm.running_mean is mean
    assert torch.equal(mean, torch.zeros(2))
    assert norm.num_batches_tracked is count
    assert count == 0


def test_a_buffer_that_did_not_change_is_not_written() -> None:
    norm = nn.BatchNorm1d(2).eval()
    version = norm.running_mean._version
    with preserved(norm):
        norm(torch.randn(4, 2))
    assert norm.running_mean._version == version


def test_all_is_restored_when_the_forward_fails() -> None:
    drop = nn.Sequential(nn.Dropout(), nn.Linear(1, 1))
    random = torch.get_rng_state()
    with pytest.raises(RuntimeError), preserved(drop, train=False):
        drop(torch.rand(3))
    assert drop[0].training
    assert torch.equal(torch.get_rng_state(), random)
