"""What the layers of a block read, and its second moments."""

import torch
from torch import nn

from nncfx.quantization.blocks.block_calls import BlockCall
from nncfx.quantization.blocks.block_layers import find_block_layers, group_moments


def test_moments_and_energies_are_those_of_what_the_group_reads() -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    rows = torch.randn(2, 5, 3)
    calls = [BlockCall(one, (), {}) for one in rows]
    groups = find_block_layers(block, calls[0]).groups
    read = torch.relu(block[0](rows)).flatten(0, 1)
    expected = [one.T @ one / 10 for one in (rows.flatten(0, 1), read)]
    torch.testing.assert_close(group_moments(block, groups, calls), expected)
    energies = group_moments(block, groups, calls, only_energies=True)
    torch.testing.assert_close(energies, [one.diagonal() for one in expected])


def test_a_block_runs_no_further_than_the_group() -> None:
    block = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    call = BlockCall(torch.ones(5, 3), (), {})
    first = find_block_layers(block, call).groups[0]
    behind: list[bool] = []
    block[1].register_forward_pre_hook(lambda *_: behind.append(True))
    group_moments(block, [first], [call, call])
    assert not behind
