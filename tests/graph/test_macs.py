"""Promises of nncfx.graph.macs; expected counts are worked out by hand in each case."""

import pytest

from nncfx.graph import NNCFGraph, Operation, TensorInfo, macs, total_macs


def count(function: str, inputs: list[tuple[int, ...]], output: tuple[int, ...]) -> int:
    infos = tuple(TensorInfo(shape, "float32") for shape in inputs)
    out = TensorInfo(output, "float32")
    one = Operation("Net/f_0", function, 0, 0, "", "Net", infos, (out,))
    return total_macs(NNCFGraph((one,), (), infos[:1], (out,)))


@pytest.mark.parametrize(
    ("function", "inputs", "output", "expected"),
    [
        # 4 filters of 3x3x3 at 6x6 places, two images
        ("conv2d", [(2, 3, 8, 8), (4, 3, 3, 3), (4,)], (2, 4, 6, 6), 2 * 4 * 27 * 36),
        # depthwise: each of 4 channels has one 3x3 filter
        ("conv2d", [(1, 4, 8, 8), (4, 1, 3, 3)], (1, 4, 6, 6), 4 * 9 * 36),
        ("conv1d", [(1, 2, 9), (5, 2, 3)], (1, 5, 7), 5 * 6 * 7),
        # each of 3x4x4 inputs is multiplied with 5 filters of 2x2
        ("conv_transpose2d", [(1, 3, 4, 4), (3, 5, 2, 2)], (1, 5, 8, 8), 48 * 20),
        ("linear", [(2, 7, 16), (10, 16), (10,)], (2, 7, 10), 14 * 16 * 10),
        ("__matmul__", [(2, 3, 4), (2, 4, 5)], (2, 3, 5), 2 * 3 * 4 * 5),
        ("mv", [(3, 4), (4,)], (3,), 12),
        ("dot", [(6,), (6,)], (), 6),
        ("addmm", [(5,), (3, 4), (4, 5)], (3, 5), 60),
        ("addbmm", [(3, 5), (2, 3, 4), (2, 4, 5)], (3, 5), 120),
        # x @ y where x is no tensor of torch: y is what is read first
        ("__rmatmul__", [(4, 5), (3, 4)], (3, 5), 60),
        ("linalg_matmul", [(3, 4), (4, 5)], (3, 5), 60),
        # 7 rows in 2 groups, each with a matrix of its own
        ("_grouped_mm", [(7, 4), (2, 4, 5), (2,)], (7, 5), 7 * 4 * 5),
        # each of 2x6 outputs sums 3x5 products of pairs
        ("bilinear", [(2, 3), (2, 5), (6, 3, 5), (6,)], (2, 6), 12 * 15),
        # 2 heads, 7 queries, 9 keys: scores over e = 4, sums of values of e = 6
        (
            "scaled_dot_product_attention",
            [(1, 2, 7, 4), (1, 2, 9, 4), (1, 2, 9, 6)],
            (1, 2, 7, 6),
            2 * 7 * 9 * (4 + 6),
        ),
        # 5 steps of 2 sequences; gates 4*3 from 4 inputs and 3 states
        (
            "lstm",
            [(5, 2, 4), (1, 2, 3), (1, 2, 3), (12, 4), (12, 3), (12,), (12,)],
            (5, 2, 3),
            10 * 12 * (4 + 3),
        ),
        ("gru_cell", [(2, 4), (2, 3), (9, 4), (9, 3), (9,), (9,)], (2, 3), 2 * 9 * 7),
    ],
)
def test_macs_of(
    function: str, inputs: list[tuple[int, ...]], output: tuple[int, ...], expected: int
) -> None:
    assert count(function, inputs, output) == expected


def test_an_operation_that_multiplies_nothing_is_not_listed(graph: NNCFGraph) -> None:
    # 4 filters of 3x3x3 at 6x6 places
    assert macs(graph) == {"Net/Conv2d[conv]/conv2d_0": 4 * 27 * 36}


def test_a_packed_sequence_counts_its_real_steps() -> None:
    infos = (
        TensorInfo((6, 4), "float32"),
        TensorInfo((3,), "int64"),
        *(TensorInfo(shape, "float32") for shape in [(1, 2, 3), (9, 4), (9, 3)]),
    )
    one = Operation("Net/gru_0", "gru", 0, 0, "", "Net", infos, (infos[0],))
    assert total_macs(NNCFGraph((one,), (), (), ())) == 6 * 9 * 7
