"""Hidden units of cells and of packed sequences are channels, like those of recurrent layers."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from nncfx.channels import analyze_channels
from nncfx.graph.channels import Role
from nncfx.thinning import thin
from small_models import Function

CELLS = [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)]
LENGTHS = torch.tensor([2, 5, 3])


def steps(cell: type[nn.RNNCellBase]) -> Function:
    """Five steps of a cell, the first from nothing, and a layer that reads the last unit."""

    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in m.stem(x).unbind(1):
            state = m.cell(step, state)
        return m.head(state[0] if isinstance(state, tuple) else state)

    return Function(forward, stem=nn.Linear(3, 4), cell=cell(4, 6), head=nn.Linear(6, 2))


class Packed(nn.Module):
    """A recurrent layer over sequences of several lengths, in any order."""

    def __init__(self, layer: type[nn.RNNBase]) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 4)
        self.layer = layer(4, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(
            self.stem(x), lengths, batch_first=True, enforce_sorted=False
        )
        return self.head(pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0])


def without_unit(model: nn.Module, reads: tuple[str, ...], units: int) -> nn.Module:
    """Return a model that reads neither unit 1 of its cells nor channel 2 of its stem."""
    model = model.double().eval()
    for name, weight in model.named_parameters():
        if name.startswith(reads):
            weight.data[:, 1::units] = 0
        if "weight_ih" in name:
            weight.data[:, 2] = 0
    return model


@pytest.mark.parametrize(("cell", "gates"), CELLS)
def test_a_unit_of_a_cell_goes_with_a_row_of_each_gate(
    cell: type[nn.RNNCellBase], gates: int
) -> None:
    torch.manual_seed(0)
    model = without_unit(steps(cell), ("cell.weight_hh", "head.weight"), 6)
    result = thin(model, torch.randn(2, 5, 3, dtype=torch.float64))
    assert result.entries["cell.weight_hh", 0] == tuple(6 * gate + 1 for gate in range(gates))
    assert result.removed["stem"] == (2,)
    assert (result.model.cell.hidden_size, result.model.cell.input_size) == (5, 3)
    assert result.max_error <= 1e-12


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU, nn.RNN])
def test_units_of_packed_sequences_go(layer: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    model = without_unit(Packed(layer), ("layer.weight_hh", "head.weight"), 6)
    result = thin(model, (torch.randn(3, 5, 3, dtype=torch.float64), LENGTHS))
    assert result.removed["stem"] == (2,)
    assert (result.model.layer.hidden_size, result.model.head.in_features) == (5, 10)
    assert result.max_error <= 1e-12


def test_channels_of_sequences_laid_side_by_side_are_one() -> None:
    """`pack_sequence` pads first."""

    class Listed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stems = nn.ModuleList([nn.Linear(3, 4), nn.Linear(3, 4)])
            self.layer, self.head = nn.GRU(4, 6), nn.Linear(6, 2)

        def forward(self, *sequences: torch.Tensor) -> torch.Tensor:
            parts = [stem(one) for stem, one in zip(self.stems, sequences, strict=True)]
            return self.head(self.layer(pack_sequence(parts, enforce_sorted=False))[1][0])

    torch.manual_seed(0)
    model = without_unit(Listed(), ("layer.weight_hh", "head.weight"), 6)
    result = thin(model, tuple(torch.randn(n, 3, dtype=torch.float64) for n in (2, 5)))
    assert [one.out_features for one in result.model.stems] == [3, 3]
    assert result.model.layer.hidden_size == 5
    assert result.max_error <= 1e-12


@pytest.mark.parametrize("is_even", [True, False])
def test_messages_of_a_graph_are_added_up_channel_by_channel(is_even: bool) -> None:
    """Where the places are the same for all channels; places of its own hold each channel."""

    def forward(m: Function, nodes: torch.Tensor) -> torch.Tensor:
        source, target = torch.tensor([[0, 1, 2], [1, 2, 2]])
        states = m.stem(nodes).relu()
        messages = m.message(states)[source]
        places = target[:, None].expand_as(messages)
        places = places if is_even else places.clone()
        return m.head(states.scatter_add(0, places, messages))

    module = Function(forward, stem=nn.Linear(3, 6), message=nn.Linear(6, 6), head=nn.Linear(6, 2))
    torch.manual_seed(0)
    model, nodes = module.double().eval(), torch.randn(4, 3, dtype=torch.float64)
    for reader in (model.message, model.head):
        reader.weight.data[:, :2] = 0
    result = thin(model, nodes)
    assert result.removed == ({"stem": (0, 1)} if is_even else {})
    assert result.max_error <= 1e-12


def test_a_state_that_is_given_has_the_units_of_the_cell() -> None:
    """An encoder's output that begins a decoder loses channels along with it."""
    model = Function(
        lambda m, x: m.head(m.cell(x, m.begin(x))),
        begin=nn.Linear(3, 6),
        cell=nn.GRUCell(3, 6),
        head=nn.Linear(6, 2),
    )
    (found, _) = analyze_channels(model, torch.ones(2, 3))
    assert found.size == 6
    producers = {one.parameter for one in found.by_role(Role.PRODUCER)}
    assert {"begin.weight", "begin.bias", "cell.weight_ih", "cell.weight_hh"} <= producers
    consumers = {one.parameter for one in found.by_role(Role.CONSUMER)}
    assert consumers == {"cell.weight_hh", "head.weight"}


def test_weights_that_are_computed_are_told() -> None:
    def forward(m: Function, x: torch.Tensor) -> torch.Tensor:
        cell = m.cell
        weights = (cell.weight_ih.softmax(0), cell.weight_hh, cell.bias_ih, cell.bias_hh)
        return torch.gru_cell(m.stem(x), torch.zeros(len(x), 6), *weights)

    model = Function(forward, stem=nn.Linear(3, 4), cell=nn.GRUCell(4, 6))
    found = analyze_channels(model, torch.ones(2, 3))
    assert "'Function/gru_cell_0' has weights that are not parameters" in str(found)


def test_channels_along_the_steps_stay() -> None:
    def forward(m: Function, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(m.stem(x).mT, lengths, True, enforce_sorted=False)
        return m.layer(packed)[1]

    model = Function(forward, stem=nn.Linear(3, 5), layer=nn.GRU(2, 4, batch_first=True))
    found = analyze_channels(model, (torch.randn(3, 2, 3), LENGTHS))
    assert "takes channels for steps" in str(found)
