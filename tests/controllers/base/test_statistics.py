"""Statistics are read as text, as plain values, and as tables of a terminal."""

import dataclasses
import io

import torch
from rich.console import Console
from torch import nn

import nncfx
from nncfx.controllers import CompositeStatistics, Statistics


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    name: str
    shape: tuple[int, ...]
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layers(Statistics):
    level: float
    layers: tuple[Layer, ...]

    def to_str(self) -> str:
        return "layers"


STATISTICS = Layers(level=0.25, layers=(Layer(name="first", shape=(8, 4), count=12345),))


def drawn(statistics: Statistics) -> list[list[str]]:
    """Return the words of each line that a terminal shows."""
    file = io.StringIO()
    Console(file=file, width=100).print(statistics)
    return [line.split() for line in file.getvalue().splitlines() if line.strip("─ \n")]


def test_a_scope_is_drawn_with_its_brackets() -> None:
    layer = Layer(name="Net/Linear[fc]", shape=(8, 4), count=1)
    assert drawn(Layers(level=0.25, layers=(layer,)))[-1][0] == "Net/Linear[fc]"


def test_single_numbers_and_records_are_tables_of_their_own() -> None:
    assert drawn(STATISTICS) == [
        ["level", "0.250"],
        ["layers"],
        ["name", "shape", "count"],
        ["first", "8", "x", "4", "12,345"],
    ]


def test_statistics_without_records_are_one_table() -> None:
    assert drawn(Layers(level=0.5, layers=())) == [["level", "0.500"]]


def test_those_of_several_algorithms_follow_each_other_by_name() -> None:
    lines = drawn(CompositeStatistics(parts={"one": STATISTICS, "two": STATISTICS}))
    assert [line for line in lines if len(line) == 1] == [["one"], ["layers"], ["two"], ["layers"]]


def test_a_real_algorithm_shows_every_weight() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    item = {"algorithm": "magnitude_sparsity"}
    controller, _ = nncfx.create_compressed_model(model, {"compression": item}, torch.ones(1, 4))
    controller.level = 0.5
    words = [word for line in drawn(controller.statistics()) for word in line]
    assert {"0.weight", "1.weight"} <= set(words)
