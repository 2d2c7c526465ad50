"""Moving elements keeps channels apart, or fixes those that it cannot keep apart."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from nncfx.channels.rules.movement import select
from nncfx.channels.state import ChannelState
from nncfx.channels.trace import analyze_channels
from nncfx.graph.channels import Channels
from nncfx.thinning import thin
from nncfx.tracing.record.function_mode import TracedCall
from small_models import Function

Operation = Callable[[torch.Tensor], torch.Tensor]


def between(operation: Operation) -> Function:
    """A convolution, an operation on its 4 channels of 6 x 6 pixels, and a convolution."""
    return Function(
        lambda m, x: m.head(operation(m.stem(x))),
        stem=nn.Conv2d(3, 4, 1),
        head=nn.LazyConv2d(2, 1),
    )


def analyse(operation: Operation, batch: int = 2) -> Channels:
    model, image = between(operation), torch.zeros(batch, 3, 6, 6)
    model(image)
    return analyze_channels(model, image)


def columns(channels: Channels) -> list[list[int]]:
    return next(m for m in channels.find("stem").members if m.axis == 1).indices.tolist()


def rows(channels: Channels) -> list[list[int]]:
    return channels.find("stem").origin.indices.tolist()


def pixels_added(x: torch.Tensor, *, channels: int = 1) -> torch.Tensor:
    """Add the first row of pixels to the last, by an index of 1 or of as many channels."""
    index = torch.full((2, channels, 1, 6), 5).expand(2, 4, 1, 6)
    return x.scatter_add(2, index, x[:, :, :1])


def with_zeros(x: torch.Tensor, index: tuple[slice | int, ...]) -> torch.Tensor:
    x = x.clone()
    x[index] = 0.0
    return x


EACH_ON_ITS_OWN = [[0], [1], [2], [3]]

KEPT: dict[str, Operation] = {
    "identity": lambda x: x,
    "permute and back": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
    "transpose pixels": lambda x: x.transpose(2, 3),
    "flatten pixels and back": lambda x: x.flatten(2).view(2, -1, 6, 6),
    "crop pixels": lambda x: x[:, :, 1:-1, ::2],
    "ellipsis": lambda x: x[..., :3],
    "first image": lambda x: x[:1],
    "split pixels": lambda x: x.split(3, dim=2)[1],
    "pad pixels": lambda x: F.pad(x, (1, 1, 2, 2)),
    "reflect pixels": lambda x: F.pad(x, (1, 1, 2, 2), mode="reflect"),
    "crop by padding": lambda x: F.pad(x, (-1, 0, 0, -2)),
    "roll pixels": lambda x: x.roll(2, dims=3),
    "flip pixels": lambda x: x.flip(2),
    "stack and mean": lambda x: torch.stack([x, 2 * x]).mean(0),
    "concatenate pixels": lambda x: torch.cat([x, x], 2),
    "half and back": lambda x: x.half().float(),
    "expand": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 6, 6),
    "squeeze": lambda x: x.mean((2, 3), keepdim=True).squeeze(3).unsqueeze_(3),
    "gated pixels": torch._C._nn.glu,
    "one chunk": lambda x: x.chunk(1, 1)[0],
    "concatenate images": lambda x: torch.cat([x, x])[:2],
    "flatten all and back": lambda x: x.view(2, -1).unflatten(1, (-1, 6, 6)),
    "require a gradient": lambda x: x.requires_grad_(),
    "format of a mask": lambda x: x * torch.ones(1, 1, 6, 6).double().to(x),
    "index_add": lambda x: x.index_add(-1, torch.tensor([5]), x[..., :1]),
    "index_add by names": lambda x: x.index_add(
        dim=2, index=torch.tensor([0]), source=x[:, :, :1]
    ),
    "scatter_add": pixels_added,
    "assign to pixels": lambda x: with_zeros(x, (slice(None), slice(None), 0)),
}


@pytest.mark.parametrize("name", KEPT)
def test_channels_stay_apart(name: str) -> None:
    found = analyse(KEPT[name])
    assert found.find("stem").fixed is None
    assert columns(found) == EACH_ON_ITS_OWN


FIXED: dict[str, tuple[Operation, str]] = {
    "channel slice": (lambda x: x[:, 1:], "takes some channels by their position"),
    "roll": (lambda x: x.roll(1, dims=1), "takes some channels by their position"),
    "flip": (lambda x: x.flip(1), "takes some channels by their position"),
    "uneven split": (lambda x: x.split([1, 3], 1)[1], "takes some channels by their position"),
    "unbind": (lambda x: torch.stack(x.unbind(1), 1), "takes some channels by their position"),
    "uneven split of a repetition": (
        lambda x: torch.cat([x, x], 1).split([6, 2], 1)[0],
        "takes some channels by their position",
    ),
    "index_add": (
        lambda x: x.index_add(-3, torch.tensor([0]), torch.ones(2, 1, 6, 6)),
        "adds to some channels by their position",
    ),
    "scatter_add at places of each channel": (
        lambda x: pixels_added(x, channels=4),
        "adds to some channels by their position",
    ),
    "gather pixels by those of each channel": (
        lambda x: x.gather(2, (x[:, :, :1] > 0).long()),
        "cannot be repeated on channels",
    ),
    "look up": (
        lambda x: torch.ones(9, 4)[(x > 0).long()].mean(-1),
        "cannot be repeated on channels",
    ),
    "bytes": (lambda x: x.view(torch.int64).float(), "cannot be repeated on channels"),
    "format": (lambda x: x.double().view(torch.float64).float(), "cannot be repeated on channels"),
    "stack with a constant": (
        lambda x: torch.stack([x, torch.ones(2, 4, 6, 6)]).sum(0),
        "a constant of the model's code takes the place of such a channel",
    ),
    "concatenate along both axes": (
        lambda x: torch.cat([x[:, :, 0, :4], x[:, :, 0, :4].transpose(1, 2)], 1)[..., None],
        "joins channels of different axes",
    ),
    "reflect channels": (
        lambda x: torch._C._nn.pad(x, (0, 0, 0, 0, 1, 1), "reflect"),
        "changes the channels themselves",
    ),
    "crop channels": (lambda x: F.pad(x, (0, 0, 0, 0, -1, 0)), "changes the channels themselves"),
    "select by own values": (lambda x: x.gather(1, x.argsort(1)), "computes across its channels"),
    "assign to a channel": (
        lambda x: with_zeros(x, (slice(None), 0)),
        "writes some channels by their position",
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_channels_taken_by_position_are_fixed_with_the_reason(name: str) -> None:
    operation, reason = FIXED[name]
    assert reason in (analyse(operation).find("stem").fixed or "")


TAKEN: dict[str, tuple[Operation, list[list[int]]]] = {
    "second axis": (lambda x: x.view(2, 2, 2, 6, 6)[:, :, 0], [[0, 1], [2, 3]]),
    "first axis": (lambda x: x.view(2, 2, 2, 6, 6)[:, 0], [[0, 2], [1, 3]]),
    "two axes": (
        lambda x: torch.cat([x, x.flip(2)], 1).view(2, 2, 2, 2, 6, 6)[:, 0, :, 0],
        [[0, 1], [2, 3]],
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_where_channels_lie_along_several_axes_those_of_one_may_be_taken(name: str) -> None:
    """Channels 2 i + j lie at (i, j): if a j is taken, all of an i go together."""
    operation, expected = TAKEN[name]
    found = analyse(operation)
    assert found.find("stem").fixed is None
    assert rows(found) == expected
    assert columns(found) == [[0], [1]]


def test_chunks_tie_their_channels_one_to_one() -> None:
    found = analyse(lambda x: torch.mul(*x.chunk(2, 1)))
    assert [m.indices.tolist() for m in found.find("stem").members] == [
        [[0, 2], [1, 3]],
        [[0, 2], [1, 3]],
        [[0], [1]],
    ]


@pytest.mark.parametrize("glu", [F.glu, torch._C._nn.glu])
def test_a_gated_linear_unit_ties_value_and_gate(glu: Callable[..., torch.Tensor]) -> None:
    found = analyse(lambda x: glu(x, 1))
    assert found.find("stem").members[0].indices.tolist() == [[0, 2], [1, 3]]


def test_of_eight_channels_the_second_four_are_the_gate() -> None:
    found = analyse_own(lambda _, x: F.glu(x))
    assert rows(found) == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_pixel_shuffle_ties_the_channels_of_a_pixel_block() -> None:
    found = analyse(lambda x: F.pixel_shuffle(x.repeat_interleave(2, 1), 2))
    assert found.find("stem").members[0].indices.tolist() == [[0, 1], [2, 3]]
    assert columns(found) == [[0], [1]]


def test_an_image_without_a_batch_is_shuffled_as_one_of_a_batch() -> None:
    model = between(lambda x: F.pixel_shuffle(x, 2))
    model(torch.zeros(3, 6, 6))
    found = analyze_channels(model, torch.zeros(3, 6, 6))
    assert rows(found) == [[0, 1, 2, 3]]


def test_padding_of_channels_adds_columns_that_no_group_has() -> None:
    assert columns(analyse(lambda x: F.pad(x, (0, 0, 0, 0, 2, 1)))) == [[2], [3], [4], [5]]


def test_channels_folded_into_the_batch_are_fixed_as_an_output() -> None:
    found = analyse(lambda x: x.reshape(8, 1, 6, 6))
    assert found.find("stem").fixed == "an output of the model"


def test_what_is_written_to_all_channels_ties_them_to_those_of_the_place() -> None:
    def written(x: torch.Tensor) -> torch.Tensor:
        other = x.flip(2).clone()
        other[:, :, 0] = x[:, :, 1]
        return other

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        place = m.one(x).clone()
        place[:, :, 0] = m.two(x)[:, :, 1]
        return m.head(place)

    model = Function(
        forward, one=nn.Conv2d(3, 4, 1), two=nn.Conv2d(3, 4, 1), head=nn.Conv2d(4, 2, 1)
    )
    assert columns(analyse(written)) == EACH_ON_ITS_OWN
    members = analyze_channels(model, torch.zeros(2, 3, 6, 6)).find("one").members
    assert {m.parameter for m in members} >= {"one.weight", "two.weight", "head.weight"}


class Own(nn.Module):
    """A linear layer of 8 channels, code, and a linear layer; parameters and widths for the code.

    The code's parameters are packed matrices of 8 x 8, two vectors of 4, and one of 16.
    """

    def __init__(self, code: Callable[["Own", torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.width, self.some, self.rest, self.half, self.twice = 8, 3, 5, 4, 16
        self.stem = nn.Linear(3, 8)
        self.matrix = nn.Parameter(torch.ones(8, 8))
        self.one, self.two = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
        self.scale, self.long = nn.Parameter(torch.ones(8)), nn.Parameter(torch.ones(16))
        self.code = code
        self.head = nn.LazyLinear(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.code(self, self.stem(x)))


def analyse_own(code: Callable[[Own, torch.Tensor], torch.Tensor]) -> Channels:
    model, x = Own(code), torch.zeros(2, 5, 3)
    model(x)
    return analyze_channels(model, x)


def sets(channels: Channels) -> list[tuple[list[int], dict[str, list[int]]]]:
    """Return the rows of the stem in each set that may go, and widths with their falls."""
    return [
        (
            sorted(one.origin.indices.reshape(-1).tolist()),
            {width.attribute: width.counts.tolist() for width in one.widths},
        )
        for one in channels
        if one.fixed is None and one.origin.parameter == "stem.weight"
    ]


def turned(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Lay parts end to end, the last first."""
    return torch.cat(parts[::-1], -1)


BELOW, ABOVE = [0, 1, 2], [3, 4, 5, 6, 7]
SPLITS: dict[str, tuple[Callable[[Own, torch.Tensor], torch.Tensor], Any]] = {
    "all named": (
        lambda m, x: turned(x.split([m.some, m.rest], -1)),
        [(BELOW, {"some": [1] * 3}), (ABOVE, {"rest": [1] * 5})],
    ),
    "positional axis": (
        lambda m, x: turned(x.split_with_sizes([m.some, m.rest], 2)),
        [(BELOW, {"some": [1] * 3}), (ABOVE, {"rest": [1] * 5})],
    ),
    "some named": (lambda m, x: turned(x.split([m.some, 5], -1)), [(BELOW, {"some": [1] * 3})]),
    "named and divided": (
        lambda m, x: turned(x.split([m.some, m.rest // 2, 3], -1)),
        [(BELOW, {"some": [1] * 3})],
    ),
    "tokens": (lambda m, x: torch.cat(x.split([m.some, 2], 1), 1), [(list(range(8)), {})]),
    "equal parts": (
        lambda m, x: turned(x.split(m.half, -1)),
        [(list(range(8)), {"half": [1] * 4})],
    ),
    "a part of the width": (
        lambda m, x: turned(x.split(m.width // 2, -1)),
        [(list(range(8)), {"width": [2] * 4})],
    ),
    "a part of another width": (
        lambda m, x: turned(x.split(m.twice // 4, -1)),
        [(list(range(8)), {})],
    ),
    "one part": (lambda m, x: x.split(m.width, -1)[0], [(list(range(8)), {"width": [1] * 8})]),
}


@pytest.mark.parametrize("name", SPLITS)
def test_parts_of_named_sizes_fall_with_their_channels(name: str) -> None:
    """A part whose size only the code knows keeps its channels; equal parts lose the same."""
    code, expected = SPLITS[name]
    assert sets(analyse_own(code)) == expected


def test_equal_parts_of_a_parameter_lose_channels_of_their_own() -> None:
    """Rows 0 to 3 of the packed weight make the values, 4 to 7 the gates, which follow them."""

    def gated(m: Own, x: torch.Tensor) -> torch.Tensor:
        values, gates = m.matrix.chunk(2)
        return F.linear(x, values) * F.linear(x, gates)

    found = analyse_own(gated).find("matrix")
    assert [(m.parameter, m.axis, m.indices.tolist()) for m in found.members] == [
        ("matrix", 0, [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("head.weight", 1, [[0], [1], [2], [3]]),
    ]


def test_parts_of_a_parameter_that_are_laid_end_to_end_are_read_in_its_order() -> None:
    def added(m: Own, x: torch.Tensor) -> torch.Tensor:
        some, rest = m.matrix.split([m.some, m.rest])
        return torch.cat([F.linear(x, some), F.linear(x, rest)], -1)

    found = analyse_own(added).find("matrix")
    assert [(m.parameter, m.axis, m.indices.tolist()) for m in found.members] == [
        ("matrix", 0, [[index] for index in range(8)]),
        ("head.weight", 1, [[index] for index in range(8)]),
    ]


FOLLOWERS: dict[str, tuple[Callable[[Own, torch.Tensor], torch.Tensor], dict[str, list[int]]]] = {
    "cast": (lambda m, x: x * m.scale.double().float(), {"scale": list(range(8))}),
    "stacked": (
        lambda m, x: torch.stack([x[0], m.scale.expand(5, -1)]).sum(0),
        {"scale": list(range(8))},
    ),
    "concatenated along tokens": (
        lambda m, x: torch.cat([x, m.scale.expand(2, 1, -1)], 1),
        {"scale": list(range(8))},
    ),
    "end to end": (
        lambda m, x: x + torch.cat([m.one, m.two]),
        {"one": [0, 1, 2, 3], "two": [0, 1, 2, 3]},
    ),
}


@pytest.mark.parametrize("name", FOLLOWERS)
def test_a_parameter_that_is_moved_beside_channels_follows_them(name: str) -> None:
    code, expected = FOLLOWERS[name]
    channels = [one for one in analyse_own(code) if one.fixed is None]
    members = [m for one in channels for m in one.members if m.parameter in expected]
    assert {m.parameter for m in members} == set(expected)
    assert {(m.axis, str(m.role)) for m in members} == {(0, "follower")}
    for parameter, entries in expected.items():
        mine = [m.indices.reshape(-1) for m in members if m.parameter == parameter]
        assert np.concatenate(mine).tolist() == entries


def test_a_vector_with_channels_behind_a_parameter_shifts_their_columns() -> None:
    found = analyse_own(lambda m, x: torch.cat([m.one, x.sum((0, 1))]))
    assert found.find("stem").fixed is None
    assert columns(found) == [[index] for index in range(4, 12)]


UNFOLLOWED: dict[str, Callable[[Own, torch.Tensor], torch.Tensor]] = {
    "glu": lambda m, x: x * F.glu(m.long, -1),
    "pixel_shuffle": lambda m, x: x * F.pixel_shuffle(m.long.view(4, 2, 2), 2).flatten()[:8],
    "pad": lambda m, x: x * F.pad(m.one, (0, 4)),
    "cat": lambda m, x: F.linear(x, torch.cat([m.matrix, m.matrix])),
}


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_a_parameter_that_such_a_function_changes_fixes_what_it_meets(name: str) -> None:
    found = analyse_own(UNFOLLOWED[name])
    assert found.find("stem").fixed is not None


def test_what_is_written_to_some_channels_must_stay_with_them() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        place = m.one(x).clone()
        place[:, :2] = m.two(x)
        return m.head(place)

    model = Function(
        forward, one=nn.Conv2d(3, 4, 1), two=nn.Conv2d(3, 2, 1), head=nn.Conv2d(4, 2, 1)
    )
    fixed = analyze_channels(model, torch.zeros(2, 3, 6, 6)).fixed
    reason = "'Function/__setitem___0' writes some channels by their position"
    assert (fixed["one"], fixed["two"]) == (reason, reason)


@pytest.mark.parametrize(
    ("error", "is_raised"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("\"roll\" not implemented for 'Long'"), False),
    ],
)
def test_ids_that_cannot_be_moved_are_fixed_but_for_faults_of_the_machine(
    error: RuntimeError, is_raised: bool
) -> None:
    def roll(_: torch.Tensor) -> torch.Tensor:
        raise error

    state, x = ChannelState(), torch.zeros(2, 4)
    ids = state.ledger.create(4)
    state.lay(x, ids, 1)
    call = TracedCall(roll, (x,), {}, x, "", "", nn.Module, None, {}, [x], [x])
    with pytest.raises(type(error)) if is_raised else contextlib.nullcontext():
        select(state, call)
    assert state.ledger.are_fixed(ids) != is_raised


def test_the_modules_are_named_whose_code_gives_the_size_of_parts() -> None:
    assert analyse_own(lambda _, x: turned(x.split(4, -1))).literals == {"": ("Own/split_0",)}
    assert analyse_own(lambda m, x: turned(x.split(m.half, -1))).literals == {}


class Neighbours(nn.Module):
    """Two layers over the edges of a graph, as PyTorch Geometric lays them out."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.first, self.second, self.kind = nn.Linear(3, 4), nn.Linear(4, 2), kind

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        apart = edges[:, edges[0] != edges[1]]
        loops = torch.arange(len(x)).expand(2, -1)
        ends = torch.cat([apart, loops], 1)
        return self.gathered(self.second, self.gathered(self.first, x, *ends), *ends)

    def gathered(self, layer: nn.Module, x: torch.Tensor, *ends: torch.Tensor) -> torch.Tensor:
        sources, targets = ends
        y = layer(x).relu()
        parts = y.index_select(-2, sources)
        found = torch.zeros_like(y).scatter_add_(-2, targets.view(-1, 1).expand_as(parts), parts)
        if self.kind == "sum":
            return found
        count = torch.zeros(len(x)).scatter_add_(0, targets, torch.ones(len(targets)))
        return found / count.view(-1, 1).expand_as(found)


@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_layers_over_the_edges_of_a_graph_lose_channels(kind: str) -> None:
    torch.manual_seed(0)
    model = Neighbours(kind).eval()
    inputs = (torch.randn(5, 3), torch.tensor([[0, 1, 2, 3, 3], [1, 1, 4, 0, 2]]))
    first = next(one for one in analyze_channels(model, inputs) if one.name == "first")
    assert (first.size, first.fixed) == (4, None)
    model.second.weight.data[:, 1:3] = 0
    before = model(*inputs)
    result = thin(model, inputs)
    assert result.entries["first.weight", 0] == (1, 2)
    torch.testing.assert_close(result.model(*inputs), before)


def test_numbers_repeated_over_channels_go_with_them() -> None:
    torch.manual_seed(0)
    model = between(lambda x: x + torch.ones(1, 1, 1, 1).expand_as(x)).eval()
    image = torch.randn(2, 3, 6, 6)
    model(image)
    model.stem.weight.data[1] = 0  # zero where it is made, and not where it is read
    model.head.weight.data[:, 2] = 0
    before = model(image)
    result = thin(model, image)
    assert 2 in result.entries["stem.weight", 0]
    torch.testing.assert_close(result.model(image), before)


@pytest.mark.parametrize(("axis", "are_fixed"), [(1, True), (0, False)])
def test_an_index_without_values_takes_rows_but_no_channels(axis: int, are_fixed: bool) -> None:
    state, x = ChannelState(), torch.zeros(3, 4)
    ids = state.ledger.create(4)
    state.lay(x, ids, 1)
    order = torch.zeros(3, dtype=torch.int64, device="meta")
    chosen = (slice(None), order) if axis else (order,)
    result = x.new_zeros(3, 3) if axis else x.new_zeros(3, 4)
    index = torch.Tensor.__getitem__
    call = TracedCall(
        index, (x, chosen), {}, result, "", "", nn.Module, None, {}, [x, order], [result]
    )
    select(state, call)
    assert state.ledger.are_fixed(ids) == are_fixed
    if not are_fixed:
        assert state.ids(result).tolist() == [ids.tolist()] * 3
