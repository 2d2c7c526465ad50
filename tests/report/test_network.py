"""The tree has every operation once, in order, beside what became of its layer."""

import dataclasses

import report_evidence as given
from nncfx.evidence import OperationFacts
from nncfx.report.network import Leaf, Scope, histograms, network_tree


def leaves(scope: Scope) -> list[Leaf]:
    found: list[Leaf] = []
    for one in scope.items:
        found += [one] if isinstance(one, Leaf) else leaves(one)
    return found


def test_scopes_hold_their_operations() -> None:
    tree = network_tree(given.EVIDENCE)
    assert (tree.name, tree.count, tree.is_open) == ("Net", 3, True)
    assert [one.name for one in tree.items if isinstance(one, Scope)] == [
        "Conv2d[conv1]",
        "Linear[fc]",
    ]
    conv, relu, linear = leaves(tree)
    assert (conv.function, conv.pruned, conv.kept) == ("conv2d", "16 of 64 channels", "25%")
    assert (conv.precision, conv.colour) == ("2-bit codebook", "bits4")
    assert (relu.function, relu.reads, relu.colour) == ("relu", (0,), "")
    assert (linear.pruned, linear.colour) == ("", "bits16")


def test_a_large_network_is_folded() -> None:
    many = tuple(
        OperationFacts(address=f"Net/Block[{n}]/relu_0", module=str(n), inputs=(n - 1,), shape="1")
        for n in range(50)
    )
    tree = network_tree(dataclasses.replace(given.EVIDENCE, operations=many))
    assert tree.is_open
    assert not any(one.is_open for one in tree.items if isinstance(one, Scope))
    assert network_tree(dataclasses.replace(given.EVIDENCE, operations=())) is None


def test_histograms() -> None:
    first, second = histograms(given.WEIGHTS)
    # three bins of a third of the width each; the last is the tallest, the middle one empty
    assert first.bars.count("z") == 2
    assert first.ticks == (0.0, 180.0, 240.0)
    assert (first.zeros, first.sensitivity, first.sensitivity_width) == ("25%", "0.25", "100.0%")
    assert (second.sensitivity, second.ticks) == ("", ())
