"""Widths that code holds are found by trial."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import fx, nn

import nncfx
from nncfx.thinning import prunable_channels
from small_models import Function

ROWS = torch.ones(2, 3)


class Block(nn.Module):
    """Holds a width in its code, not in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(3, 6), nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(self.second(self.first(x).reshape(-1, 6)))


def stack() -> nn.Module:
    return nn.Sequential(Block(), nn.ReLU(), Block(), nn.Linear(3, 2))


def test_what_the_failing_operation_reads_is_fixed_and_nothing_else() -> None:
    channels = prunable_channels(stack(), ROWS)
    assert {one.name for one in channels.prunable} == {
        "0.second",
        "0.third",
        "2.second",
        "2.third",
    }


def test_counterparts_in_other_blocks_are_fixed_with_the_same_reason() -> None:
    fixed = prunable_channels(stack(), ROWS).fixed
    assert fixed["0.first"] == fixed["2.first"]
    assert fixed["0.first"].startswith("'Sequential/Block[0]/reshape_0' fails without some")


def test_numbered_blocks_of_named_stages_are_counterparts_however_many_there_are() -> None:
    # one trial for each block would be more trials than there are
    stages = [OrderedDict((f"unit{i}", Block()) for i in range(1, 13)) for _ in range(2)]
    model = nn.Sequential(
        OrderedDict(stage1=nn.Sequential(stages[0]), stage2=nn.Sequential(stages[1]))
    )
    channels = prunable_channels(model, ROWS)
    assert len(channels.prunable) == 47  # of 24 second and third layers all but the last
    assert channels.fixed["stage2.unit12.first"] == channels.fixed["stage1.unit1.first"]


class Halves(nn.Module):
    """Computes a width from two integers that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.both = 2, 6
        self.first, self.last = nn.Linear(3, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, other = self.first(x).split([self.one, self.both - self.one], 1)
        return self.last(torch.cat([one.relu(), other], 1))


def test_modules_of_one_class_become_graphs_together_however_many_there_are() -> None:
    # one trial for each module would be more trials than there are
    model = nn.Sequential(*(Halves() for _ in range(24)), nn.Linear(3, 2)).eval()
    channels = prunable_channels(model, ROWS, form="auto")
    assert not [name for name in channels.fixed if name.endswith("first")]
    for block in model[:-1]:
        block.last.weight.data[:, [0, 4]] = 0
    result = nncfx.thin(model, ROWS, form="auto")
    assert result.model(ROWS).allclose(model(ROWS))
    assert {block.first.out_features for block in result.model[:-1]} == {4}


def test_trials_trace_the_code_of_a_module_once_for_each_mode() -> None:
    traced = []

    class Traced(Halves):
        """Tells when its code is written as a graph."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if isinstance(x, fx.Proxy):
                traced.append(self.training)
            return super().forward(x)

    prunable_channels(nn.Sequential(Traced(), nn.Linear(3, 2)), ROWS, form="auto")
    assert traced == [False, True]


def test_parts_of_a_block_are_no_counterparts_though_their_names_have_numbers() -> None:
    class Free(nn.Module):
        """Holds a width in its code if that is six."""

        def __init__(self, *widths: int) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(*widths[:2]), nn.Linear(*widths[1:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.first(x)
            return self.last(hidden.reshape(-1, 6 if hidden.shape[-1] < 7 else hidden.shape[-1]))

    assert [
        one.name
        for one in prunable_channels(
            Function(lambda m, x: m.part2(m.part1(x)), part1=Free(3, 6, 3), part2=Free(3, 40, 3)),
            ROWS,
        ).prunable
    ] == ["part1.last", "part2.first"]


def test_the_model_stays_as_it_was() -> None:
    model = stack()
    before = copy.deepcopy(model.state_dict())
    prunable_channels(model, ROWS)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_width_computed_from_two_that_change_alike_is_not_taken_for_free() -> None:
    class Heads(nn.Module):
        """Divides the width of its input by its number of heads to get that of a head."""

        def __init__(self) -> None:
            super().__init__()
            self.heads = 4
            self.stem, self.qkv = nn.Linear(3, 12), nn.Linear(12, 12)
            self.out = nn.Linear(12, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            heads = self.qkv(x).view(len(x), self.heads, x.shape[-1] // self.heads)
            weights = (heads @ heads.mT).softmax(-1)
            return self.out((weights @ heads).flatten(1))

    assert prunable_channels(Heads(), ROWS).prunable == ()


@pytest.mark.parametrize("algorithm", ["filter_pruning", "magnitude_sparsity", "quantization"])
def test_hooks_of_a_wrapped_model_do_not_matter(algorithm: str) -> None:
    x = torch.randn(4, 3, 8, 8)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3))
    expected = str(prunable_channels(model, x))
    config = {"compression": {"algorithm": algorithm}}
    if algorithm == "filter_pruning":
        config["compression"] |= {"pruning_init": 0.5, "params": {"prune_first_conv": True}}
    _, model = nncfx.create_compressed_model(model, config, x, calibration_batches=[x])
    before = model(x)
    assert str(prunable_channels(model, x)) == expected
    assert torch.equal(model(x), before)
