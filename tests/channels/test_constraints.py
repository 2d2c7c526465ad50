"""The ledger sums up ties, reasons and carriers."""

import numpy as np

from nncfx.channels.constraints import ChannelLedger
from nncfx.channels.ids import NO_CHANNEL
from nncfx.graph.channels import Role
from nncfx.tracing.calls.symbolic_sizes import NamedInteger


def test_groups_with_the_same_members_make_one_set() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(3)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    found = ledger.channels([])
    assert [(g.name, g.size, g.fixed) for g in found] == [("conv", 3, None)]


def test_a_fixed_channel_gets_a_set_of_its_own_with_a_numbered_name() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(3)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    ledger.fix(ids[1:2], "because")
    found = [(g.name, g.fixed, g.members[0].indices.tolist()) for g in ledger.channels([])]
    assert found == [("conv", None, [[0], [2]]), ("conv#2", "because", [[1]])]


def test_of_several_reasons_the_first_is_kept() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(2)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    ledger.fix(ids[1:], "first")
    ledger.tie(ids[:1], ids[1:], "there")
    ledger.fix(ids[:1], "second")
    assert dict(ledger.channels([]).fixed) == {"conv": "first"}


def test_what_is_fixed_tells_the_call_that_was_followed_or_the_one_that_is_named() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(4)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    ledger.fix(ids[:1], "an input of the model")
    ledger.place = "Net/view_0"
    ledger.fix(ids[1:2], "mixed")
    ledger.tie(ids[2:3], np.array([NO_CHANNEL]), "Net/add_0")
    found = [one.fixed_at for one in ledger.channels([])]
    assert found == ["", "Net/view_0", "Net/add_0", ""]


def test_a_channel_tied_to_a_constant_is_fixed() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(2)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    ledger.tie(ids, np.array([NO_CHANNEL, ids[1]]), "Net/add_0")
    assert [(g.size, g.fixed is None) for g in ledger.channels([])] == [(1, False), (1, True)]


def test_an_axis_noted_twice_ties_both_notes() -> None:
    ledger = ChannelLedger()
    first, second = ledger.create(2), ledger.create(2)
    ledger.carry("conv.weight", 1, first, Role.CONSUMER)
    ledger.carry("conv.weight", 1, second, Role.CONSUMER)
    assert np.array_equal(ledger.find(first), ledger.find(second))


def test_a_parameter_fixed_early_fixes_what_it_carries_later() -> None:
    ledger = ChannelLedger()
    ledger.fix_parameter("conv.weight", "computed with")
    ledger.carry("conv.weight", 0, ledger.create(2), Role.PRODUCER)
    assert dict(ledger.channels([]).fixed) == {"conv": "computed with"}


def test_channels_that_are_only_read_are_no_groups() -> None:
    ledger = ChannelLedger()
    ledger.carry("conv.weight", 1, ledger.create(2), Role.CONSUMER)
    assert len(ledger.channels([])) == 0


def test_a_parameter_of_the_root_names_its_set_itself() -> None:
    ledger = ChannelLedger()
    ledger.carry("weight", 0, ledger.create(1), Role.PRODUCER)
    assert [g.name for g in ledger.channels([])] == ["weight"]


def test_an_axis_noted_twice_keeps_what_only_one_note_knows() -> None:
    ledger = ChannelLedger()
    first, second = ledger.create(2), ledger.create(2)
    ledger.carry("conv.weight", 0, np.array([first[0], NO_CHANNEL]), Role.PRODUCER)
    ledger.carry("conv.weight", 0, np.array([NO_CHANNEL, second[1]]), Role.PRODUCER)
    assert ledger.carried("conv.weight", 0, 2).tolist() == [first[0], second[1]]


def test_a_shadow_loses_what_its_parameter_loses() -> None:
    ledger = ChannelLedger()
    ledger.shadow("conv.average", "conv.weight")
    ledger.carry("conv.weight", 0, ledger.create(2), Role.PRODUCER)
    (one,) = ledger.channels([])
    found = {member.parameter: member.indices.tolist() for member in one.members}
    assert found == {"conv.weight": [[0], [1]], "conv.average": [[0], [1]]}


def test_an_integer_that_is_computed_with_fixes_the_axes_of_its_size_in_its_module() -> None:
    ledger = ChannelLedger()
    ledger.carry("a.weight", 0, ledger.create(4), Role.PRODUCER)
    ledger.carry("a.table", 0, ledger.create(3), Role.PRODUCER)
    ledger.carry("b.weight", 0, ledger.create(4), Role.PRODUCER)
    ledger.number(NamedInteger.named(4, "a", "width", 4), "is computed with")
    found = {member.parameter: one.fixed for one in ledger.channels([]) for member in one.members}
    assert found == {"a.weight": "is computed with", "a.table": None, "b.weight": None}


def test_a_set_whose_number_the_code_gives_tells_where() -> None:
    ledger = ChannelLedger()
    ledger.carry("conv.weight", 0, ledger.create(2), Role.PRODUCER)
    ledger.hold("Net/view_0", ("conv.weight", 0))
    ledger.hold("Net/view_1", ("linear.weight", 0))
    assert [one.held for one in ledger.channels([])] == ["Net/view_0"]


def members_of(ledger: ChannelLedger) -> list[list[tuple[str, str, list[int]]]]:
    return [
        [(m.parameter, str(m.role), m.indices.reshape(-1).tolist()) for m in one.members]
        for one in ledger.channels([])
    ]


def test_an_axis_is_a_member_once_for_each_role_that_is_noted() -> None:
    """A later note may tell what an earlier one has left open."""
    ledger = ChannelLedger()
    ids = ledger.create(2)
    for role in (None, Role.PRODUCER, Role.PRODUCER, None, Role.CONSUMER):
        ledger.carry("table.weight", 1, ids, role)
    assert members_of(ledger) == [
        [("table.weight", "producer", [0, 1]), ("table.weight", "consumer", [0, 1])]
    ]


def test_parts_of_an_axis_read_channels_of_their_own() -> None:
    ledger = ChannelLedger()
    first, second = ledger.create(2), ledger.create(3)
    ledger.carry("high.weight", 0, first, Role.PRODUCER)
    ledger.carry("low.weight", 0, second, Role.PRODUCER)
    ledger.carry_part("both.weight", 1, range(2), first, 5)
    ledger.carry_part("both.weight", 1, range(2, 5), second, 5)
    assert members_of(ledger) == [
        [("high.weight", "producer", [0, 1]), ("both.weight", "consumer", [0, 1])],
        [("low.weight", "producer", [0, 1, 2]), ("both.weight", "consumer", [2, 3, 4])],
    ]


def test_a_part_that_is_noted_twice_ties_both_notes() -> None:
    ledger = ChannelLedger()
    first, second = ledger.create(2), ledger.create(3)
    ledger.carry_part("both.weight", 1, range(1, 3), first, 4)
    ledger.carry_part("both.weight", 1, range(1, 4), second, 4)
    assert ledger.find(first).tolist() == ledger.find(second[:2]).tolist()
    assert ledger.find(second[1:2]) != ledger.find(second[2:])


def test_an_integer_counts_the_channels_before_the_bound_that_it_gives() -> None:
    ledger, size = ChannelLedger(), NamedInteger.named(3, "both", "high", 3)
    ledger.carry("both.weight", 0, ledger.create(5), Role.PRODUCER)
    ledger.bound("both.weight", 0, size)
    ledger.bound("other.weight", 0, size)  # of which no channels are known
    assert ledger.has_bound("both.weight", 0, 3)
    assert not ledger.has_bound("both.weight", 0, 2)
    assert not ledger.has_bound("both.weight", 1, 3)
    ledger.count_bounds()
    widths = [
        [(w.attribute, w.counts.tolist()) for w in one.widths] for one in ledger.channels([])
    ]
    assert widths == [[("high", [1, 1, 1])], []]


def test_an_integer_that_counts_as_many_channels_twice_ties_them() -> None:
    """Of others, as a product of two widths would be, the first note holds."""
    ledger = ChannelLedger()
    first, second, third = ledger.create(2), ledger.create(2), ledger.create(3)
    for ids in (first, second, third):
        ledger.count("module", "width", ids)
    assert ledger.find(first).tolist() == ledger.find(second).tolist()
    assert len({*ledger.find(first).tolist(), *ledger.find(third).tolist()}) == 5


def test_channels_are_fixed_if_all_of_their_groups_are() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(4)
    assert not ledger.are_fixed(ids)
    ledger.fix(ids[:1], "because")
    ledger.tie(ids[:1], ids[1:2], "Net/add_0")
    assert ledger.are_fixed(ids[:2])
    assert not ledger.are_fixed(ids[1:3])


def test_rows_that_are_divided_by_their_length_do_nothing_with_channels_themselves() -> None:
    """What the rows would create, the lengths do; the rows go along."""
    ledger = ChannelLedger()
    ids = ledger.create(2)
    ledger.carry("conv.rows", 0, ids, Role.PRODUCER)
    ledger.carry("conv.length", 0, ids, Role.FOLLOWER)
    ledger.divide("conv.rows", "conv.length")
    (one,) = ledger.channels([])
    assert [(m.parameter, str(m.role), m.is_divided) for m in one.members] == [
        ("conv.rows", "follower", True),
        ("conv.length", "producer", False),
    ]


def test_the_modules_are_named_whose_constants_meet_channels() -> None:
    ledger = ChannelLedger()
    ids = ledger.create(1)
    ledger.carry("conv.weight", 0, ids, Role.PRODUCER)
    ledger.literal("block.conv", "Net/Block[block]/Conv2d[conv]/view_0")
    ledger.tie(ids, np.array([NO_CHANNEL]), "Net/Block[block]/__add___0")
    ledger.tie(ids, np.array([NO_CHANNEL]), "Net/Block[block]/__add___0")
    assert ledger.channels([]).literals == {
        "block.conv": ("Net/Block[block]/Conv2d[conv]/view_0",),
        "block": ("Net/Block[block]/__add___0",),
    }
